// SPDX-License-Identifier: Apache-2.0
// A program that forks in the middle of everything: the child can use nothing that its parent made and can make groups of
// its own, and the parent continues unchanged.

#include "support/check.hpp"
#include "support/forking.hpp"
#include "support/group_paths.hpp"
#include "support/handle_calls.hpp"
#include "support/public_api.hpp"

enum class World { kThreads, kShm, kGloo, kHosts };
enum class Way { kCaller, kThread, kHook, kPulled };

struct Case {
  World world;
  Way way;
  int ranks;
  Ending ending;
  std::string name;
};

ddp_group* make_group(const std::string& place, World world, int rank, int size) {
  ddp_group_options options = patient_options(rank, size);
  if (world == World::kThreads)
    options.timeout_ms = options.rendezvous_timeout_ms = 100'000;  // other threads keep the machine busy
  if (world == World::kShm) options.backend = DDP_BACKEND_SHM;
  if (world == World::kGloo) options.backend = DDP_BACKEND_GLOO;
  if (world == World::kHosts) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
  return create_group(place, options);
}

void destroy(const Handles& h) {
  ddp_request_destroy(h.request);
  ddp_ema_destroy(h.ema);
  ddp_optimizer_destroy(h.optimizer);
  ddp_model_destroy(h.model);
  ddp_group_destroy(h.group);
}

/// What many C++ programs have: an object that lives until exit() and destroys what it owns.
struct AtExit {
  Handles owned;
  ~AtExit() {
    ddp_group_destroy(owned.group);  // the other way round
    ddp_model_destroy(owned.model);
    ddp_optimizer_destroy(owned.optimizer);
    ddp_ema_destroy(owned.ema);
    ddp_request_destroy(owned.request);
  }
} at_exit;

int32_t own_hook(void*, ddp_bucket* bucket) {
  ddp_tensor contents;
  ddp_group* group = nullptr;
  if (ddp_bucket_get_contents(bucket, &contents) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
  return ddp_group_all_reduce(group, &contents, DDP_AVERAGE, nullptr);
}

/// A model with gradients of the program, of the library and values in memory that ranks share; each is in a bucket of its
/// own.
class Training {
 public:
  static constexpr int kCount = 1000;

  Training(ddp_group* group, int rank, int size, Way way) : size_(size), rank_(rank), way_(way) {
    h.group = group;
    auto options = defaults<ddp_model_options>();
    options.first_bucket_bytes = options.bucket_bytes = 1;
    options.progress = way == Way::kCaller ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
    if (way == Way::kPulled) options.progress = DDP_PROGRESS_AUTO;
    OK(ddp_model_create(group, &options, &h.model));
    void* shared = nullptr;
    OK(ddp_group_alloc(group, kCount * sizeof(float), &shared));
    values_[2] = static_cast<float*>(shared);
    for (int i = 0; i < 3; ++i) {
      if (i < 2) values_[i] = own_[i];
      const ddp_tensor value{values_[i], DDP_F32, DDP_CPU, 0, 1, {kCount}},
          grad{grads_[i], DDP_F32, DDP_CPU, 0, 1, {kCount}};
      OK(ddp_model_add_parameter(h.model, ("p" + std::to_string(i)).c_str(), &value, i == 1 ? nullptr : &grad, nullptr));
    }
    if (way == Way::kHook) OK(ddp_model_set_hook(h.model, own_hook, nullptr, nullptr));
    if (way == Way::kPulled) OK(ddp_model_set_pulled_hook(h.model));
    OK(ddp_model_commit(h.model, nullptr));
    auto sgd = defaults<ddp_sgd_options>();
    sgd.rate = 1;
    OK(ddp_optimizer_create_sgd(h.model, &sgd, nullptr, &h.optimizer));
    const double decay = 0.5;
    OK(ddp_ema_create(h.model, &decay, 1, &h.ema));
    OK(ddp_group_post_barrier(h.group, &h.request));
  }

  void begin() {
    ++pass_;
    OK(ddp_model_begin_backward(h.model, DDP_PASS_REDUCE));
    for (int i = 0; i < 3; ++i)
      for (int k = 0; k < kCount; ++k) grad(i)[k] = static_cast<float>(pass_ * (rank_ + 1) * (k + i));
  }
  void mark(int index) { OK(ddp_model_mark_ready(h.model, index, nullptr)); }
  /// The handle of a bucket is there from the first pull on.
  void pull(int32_t rest) {
    if (way_ != Way::kPulled) return;
    for (;;) {
      ddp_bucket* bucket = nullptr;
      OK(ddp_model_next_bucket(h.model, rest, &bucket));
      if (bucket == nullptr) return;
      h.bucket = bucket;
      if (rest == 0) return;  // open while the program forks
      finish_bucket();
    }
  }
  void finish_bucket() {
    if (h.bucket == nullptr) return;
    expect(own_hook(nullptr, h.bucket) == 0, "the pulled hook works");
    OK(ddp_model_finish_bucket(h.model, 0, nullptr));
    h.bucket = nullptr;
  }
  void end() {
    finish_bucket();
    pull(1);
    h.bucket = nullptr;
    OK(ddp_model_end_backward(h.model, nullptr));
    const float all = static_cast<float>(pass_ * size_ * (size_ + 1) / 2) / static_cast<float>(size_);
    for (int i = 0; i < 3; ++i)
      for (int k = 0; k < kCount; ++k) {
        expect_equal(grad(i)[k], all * static_cast<float>(k + i),
                     "element " + std::to_string(k) + " of gradient " + std::to_string(i));
        expect_equal(values_[i][k], sum_ * static_cast<float>(k + i),
                     "element " + std::to_string(k) + " of parameter " + std::to_string(i));
      }
    OK(ddp_optimizer_step(h.optimizer, nullptr));
    sum_ -= all;
    for (int i = 0; i < 3; ++i) expect_equal(values_[i][7], sum_ * static_cast<float>(7 + i), "a parameter after the step");
    OK(ddp_ema_update(h.ema, nullptr));
    OK(ddp_model_check_replicas(h.model, nullptr));
  }
  void pass() {
    begin();
    for (int i = 2; i >= 0; --i) mark(i);
    end();
  }

  Handles h;

 private:
  float* grad(int index) {
    if (index != 1) return grads_[index];
    ddp_tensor tensor;
    OK(ddp_model_get_grad(h.model, 1, &tensor));
    return static_cast<float*>(tensor.data);
  }
  int size_, rank_;
  Way way_;
  int pass_ = 0;
  float sum_ = 0;
  float own_[2][kCount] = {};
  float* values_[3] = {};
  float grads_[3][kCount] = {};
};

std::string run_rank(const Case& given, const std::string& place, int rank, bool forks) {
  Training training(make_group(place, given.world, rank, given.ranks), rank, given.ranks, given.way);
  const auto fork_here = [&](const char* when) {
    if (!forks) return;
    if (given.world != World::kThreads) at_exit.owned = training.h;  // threads share it
    expect_equal(in_fork(given.ending, [&] { return try_everything(training.h); }), std::string("refused"), when);
  };
  fork_here("a fork between two passes");
  training.pass();
  training.begin();
  fork_here("a fork in a pass that was just opened");
  training.mark(2);
  training.pull(0);
  fork_here("a fork in an open pass");
  training.mark(1);
  training.mark(0);
  fork_here("a fork before the end of a pass");
  training.end();
  training.pass();
  OK(ddp_group_barrier(training.h.group));
  if (forks) at_exit.owned = Handles{};
  destroy(training.h);
  return "done";
}

void run_case(const Case& given) {
  if ((given.world == World::kGloo || given.world == World::kHosts) && !has_gloo()) return;
  if (given.world == World::kThreads) {
    const std::string place = "local://" + given.name;
    return run_ranks(given.ranks, [&](int rank) { run_rank(given, place, rank, rank == 0); });
  }
  const Folder folder;
  Procs procs(given.ranks,
              [&](int rank, Reporter&) { return run_rank(given, "file://" + folder.path() + "/meet", rank, true); });
  for (const ProcResult& result : procs.wait(60'000)) expect(result.exit_code == 0, given.name + ": " + result.describe());
}

ddp_case(a_fork_is_refused_everything_and_disturbs_nothing) {
  const std::pair<World, const char*> worlds[] = {
      {World::kThreads, "threads"}, {World::kShm, "processes"}, {World::kGloo, "gloo"}, {World::kHosts, "hosts"}};
  const std::pair<Way, const char*> ways[] = {
      {Way::kCaller, "caller"}, {Way::kThread, "lane"}, {Way::kHook, "hook"}, {Way::kPulled, "pulled"}};
  int number = 0;
  for (const auto& [world, where] : worlds) {
#if defined(__SANITIZE_ADDRESS__)  // Gloo's threads allocate at any time
    if (world == World::kGloo || world == World::kHosts) continue;
#endif
    for (const auto& [way, how] : ways) {
      const Ending ending = number++ % 2 == 0 ? Ending::kByExit : Ending::kAtOnce;
      run_case({world, way, world == World::kHosts ? 4 : 2, ending, std::string(where) + "-" + how});
    }
  }
}

// Under the address sanitizer a fork may find its allocator locked by another thread, unlike the C library's.

/// The child's ranks meet elsewhere and train while the parent's pass stays open; so do the grandchildren.
// The thread sanitizer knows no threads that a fork of many threads makes.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
ddp_case(a_fork_makes_groups_of_its_own) {
  for (const World world : {World::kShm, World::kGloo}) {
    if (world == World::kGloo && !has_gloo()) continue;
    const Folder folder;
    const auto place = [&](int depth) { return "file://" + folder.path() + "/meet" + std::to_string(depth); };
    const std::function<void(int, int, const Handles&)> train = [&](int depth, int rank, const Handles& above) {
      Training training(make_group(place(depth), world, rank, 2), rank, 2, Way::kThread);
      training.begin();
      training.mark(2);
      if (above.group != nullptr) expect_equal(try_everything(above), std::string("refused"), "what was made above");
      if (depth < 2)
        expect_equal(in_fork(
                         Ending::kAtOnce,
                         [&] {
                           train(depth + 1, rank, training.h);
                           return std::string("trained");
                         },
                         40'000),
                     std::string("trained"), "fork at depth " + std::to_string(depth + 1));
      training.mark(1);
      training.mark(0);
      training.end();
      OK(ddp_group_barrier(training.h.group));
      destroy(training.h);
    };
    Procs procs(2, [&](int rank, Reporter&) { train(0, rank, Handles{}); });
    expect_success(procs, 60'000);
  }
}
#endif

/// A data-loading worker, say, that is still there when its parent is killed.
ddp_case(a_fork_does_not_hide_the_death_of_its_parent) {
  for (const World world : {World::kShm, World::kGloo})
    for (const int dying : {1, 0}) {
      if (world == World::kGloo && !has_gloo()) continue;
      const Folder folder;
      Procs procs(3, [&](int rank, Reporter& report) -> std::string {
        ddp_group* const group = make_group("file://" + folder.path() + "/meet", world, rank, 3);
        OK(ddp_group_barrier(group));
        if (rank == dying) {
          const pid_t child = fork();
          if (child == 0) {
            sleep(8);
            _exit(0);
          }
          report.say("child " + std::to_string(child));
          pause();
        }
        report.say("waiting");
        const ddp_status status = ddp_group_barrier(group);
        report.say(std::string("noticed ") + ddp_status_name(status));
        ddp_group_destroy(group);
        return "done";
      });
      const int other = dying == 0 ? 1 : 0;
      procs.wait_for(dying, "child ");
      for (int rank = 0; rank < 3; ++rank)
        if (rank != dying) procs.wait_for(rank, "waiting");
      procs.signal(dying, SIGKILL);
      const auto begin = std::chrono::steady_clock::now();
      procs.wait_for(other, "noticed DDP_ERROR_PEER_FAILED");
      procs.wait_for(2, "noticed DDP_ERROR_PEER_FAILED");
      expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "noticed before the silence of 10 s tells");
    }
}

void count_slowly(void* user_data, ddp_log_level, const char*) {
  ++*static_cast<std::atomic<int>*>(user_data);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/// A call that logs: it is refused, and the release function that it calls throws.
void log_something() {
  int data = 0;
  (void)ddp_model_set_hook(nullptr, own_hook, &data, [](void*) { throw std::runtime_error("no release"); });
}

/// Groups of two threads, and their handles, until `stop` is set.
void come_and_go(int which, int rank, const std::atomic<bool>& stop) {
  for (;;) {
    ddp_group* const group = make_group("local://busy" + std::to_string(which), World::kThreads, rank, 2);
    double ends = stop.load() ? 1 : 0;
    OK(ddp_group_reduce_metrics(group, &ends, 1, DDP_MAX));
    ddp_group_destroy(group);
    if (ends != 0) return;
  }
}

/// Handles are made and destroyed, a thread is always inside the log function, ranks wait for each other: a fork finds any
/// lock taken.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
ddp_case(a_fork_finds_no_lock_of_other_threads) {
  static std::atomic<int> messages{0};
  Procs procs(1, [](int, Reporter&) {
    OK(ddp_set_log(DDP_LOG_WARNING, count_slowly, &messages));
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&stop, i] { come_and_go(i / 2, i % 2, stop); });
    threads.emplace_back([&stop] {
      while (!stop.load()) log_something();
    });
    ddp_group* group = nullptr;
    std::thread waiting([&group] {
      group = make_group("local://late", World::kThreads, 0, 2);
      OK(ddp_group_barrier(group));
    });
    std::string wrong;
    for (int i = 0; i < 16; ++i) {
      const std::string said = in_fork(i % 2 == 0 ? Ending::kAtOnce : Ending::kByExit, [] {
        const int before = messages.load();
        std::thread other([] { ddp_group_destroy(make_group("local://busy0", World::kThreads, 1, 2)); });
        ddp_group* const mine = make_group("local://busy0", World::kThreads, 0, 2);
        const int32_t size = ddp_group_get_size(mine);
        other.join();
        ddp_group_destroy(mine);
        log_something();
        return "a group of " + std::to_string(size) + ", messages: " + std::to_string(messages.load() - before);
      });
      if (said != "a group of 2, messages: 1") wrong += "fork " + std::to_string(i) + ": " + said + "; ";
    }
    stop = true;
    ddp_group* const late = make_group("local://late", World::kThreads, 1, 2);
    OK(ddp_group_barrier(late));
    waiting.join();
    for (std::thread& thread : threads) thread.join();
    ddp_group_destroy(late);
    ddp_group_destroy(group);
    return wrong.empty() ? "fine, messages: " + std::to_string(messages.load() > 4 ? 1 : 0) : wrong;
  });
  const ProcResult result = procs.wait(100'000).at(0);
  expect(result.exit_code == 0 && result.text == "fine, messages: 1", result.describe());
}
#endif
