// A short training in which one rank ends, stays or fails in the k-th of its calls of NCCL, for every k: the others come to
// an end soon, know who it was, and have the parameters of one step, not of two.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "checkpoint/state.hpp"
#include "gpu_host/small_model.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "support/own_threads.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 3;
constexpr std::array<int64_t, 3> kShapes = {3000, 40, 2000};
using Values = std::vector<std::vector<float>>;

struct Way {
  bool shard = false;
  bool in_backward = false;
  bool reproducible = false;
  bool own = false;   // libddp keeps values and gradients
  bool lent = false;  // the communicator is the program's
  [[nodiscard]] std::string text() const {
    return std::string(shard ? "sharded" : "whole") + (in_backward ? ", in backward" : "") +
           (reproducible ? ", reproducible" : "") + (own ? ", kept by libddp" : "") + (lent ? ", lent" : "");
  }
};

/// What one rank has come to.
struct Story {
  bool is_committed = false;
  int steps = 0;  // that returned
  ddp_status status = DDP_OK;
  std::string text;
  int64_t ms = 0;  // from the order to end to the error
  Values values;
};

class Training {
 public:
  Training(group::Group& group, int rank, const Way& way)
      : rank_(rank),
        stream_(rank),
        model_(std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options(way))) {
    for (size_t p = 0; p < kShapes.size(); ++p) {
      for (auto* arrays : {&values_, &grads_, &fresh_}) arrays->emplace_back(rank, kShapes[p] * 4);
      values_[p].poke(std::vector<float>(static_cast<size_t>(kShapes[p]), static_cast<float>(p)));
      fresh_[p].poke(std::vector<float>(static_cast<size_t>(kShapes[p]), static_cast<float>(rank + 1)));
      const Tensor grad = grads_[p].tensor(group, DDP_F32);
      model_->add_parameter("p" + std::to_string(p), values_[p].tensor(group, DDP_F32), way.own ? nullptr : &grad);
    }
    SgdOptions rule;
    rule.rate = 0.5;
    rule.momentum = 0.5;
    rule.shard = way.shard ? 1 : 0;
    rule.in_backward = way.in_backward ? 1 : 0;
    sgd_ = std::make_shared<optim::Sgd>(model_, rule, rule);
    if (sgd_->in_passes() != nullptr) model_->optimizer_slot().attach(sgd_);
  }
  void commit() { model_->commit(stream_.get()); }
  void step() {
    model_->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kShapes.size(); p-- > 0;) {
      write_on(stream_.get(), fresh_[p], model_->table().parameter(static_cast<int32_t>(p)).grad.data);
      model_->pass().mark_ready(static_cast<int32_t>(p), stream_.get());
    }
    model_->end_backward(stream_.get());
    sgd_->step(stream_.get());
    stream_.synchronize();
  }
  void save() {
    checkpoint::save_stream(
        "save", {*model_, sgd_.get()}, {}, [](const void*, int64_t) { return 0; }, std::nullopt);
  }
  [[nodiscard]] Values values() const {
    wait_until([&] { return fake_gpu::pending_on_device(rank_) == 0; });
    Values all;
    for (size_t p = 0; p < kShapes.size(); ++p) {
      all.emplace_back(static_cast<size_t>(kShapes[p]));
      const void* const value = model_->table().parameter(static_cast<int32_t>(p)).value.data;
      expect(fake_gpu::peek(all.back().data(), value, kShapes[p] * 4), "peeked");
    }
    return all;
  }

 private:
  static ddp_model_options options(const Way& way) {
    ddp_model_options made{};
    made.own_values = way.own ? 1 : 0;
    made.first_bucket_bytes = made.bucket_bytes = 8'000;
    return made;
  }
  int rank_;
  GpuStream stream_;
  std::vector<GpuArray> values_, grads_, fresh_;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::Sgd> sgd_;
};

/// The ranks of one training, and what happens to one of them.
struct World {
  Way way;
  ddp_group_options options = world_options();
  int bad = 1;
  bool is_held = false;  // the bad rank comes back only when the others are done
  std::mutex mutex;      // guards groups
  std::array<group::Group*, kRanks> groups{};
  std::array<void*, kRanks> comms{};  // those that are lent
  std::array<Story, kRanks> stories;
  std::atomic<int> done{0};
  std::atomic<int64_t> since_ns{0};
  Values start;               // of rank 0, without a fault
  std::vector<Values> after;  // each step

  void lend();  // before what is ordered
  void run();
  void run_rank(group::Group& group, int rank);
  void end_lent(int rank) {
    if (void* const comm = std::exchange(comms[static_cast<size_t>(rank)], nullptr); comm != nullptr)
      static_cast<void>(fake_gpu::nccl().comm_abort(comm));
  }
  void set_group(int rank, group::Group* group) {
    const std::lock_guard lock(mutex);
    groups[static_cast<size_t>(rank)] = group;
  }
  /// The bad rank ends; unless it has left meanwhile, and one of its threads comes to NCCL late.
  void tell_of_end() {
    const std::lock_guard lock(mutex);
    group::Group* const group = groups[static_cast<size_t>(bad)];
    if (group == nullptr) return;
    since_ns = os::now_ns();
    group->health().abort(Error(DDP_ERROR_PEER_FAILED, group->name_of(bad) + " ended"));
  }
};

void World::lend() {
  options.reproducible = way.reproducible ? 1 : 0;
  if (!way.lent) return;
  std::array<char, DDP_NCCL_ID_BYTES> id{};
  expect(fake_gpu::nccl().get_unique_id(id.data()) == 0, "an id");
  run_ranks(kRanks, [&](int rank) {
    void*& comm = comms[static_cast<size_t>(rank)];
    expect(fake_gpu::table().set_device(rank) == 0, "a GPU");
    expect(fake_gpu::nccl().comm_init(&comm, kRanks, id.data(), rank, "of the program", 0) < 8, "a communicator");
    wait_until([&] {
      int32_t result = 0;
      return fake_gpu::nccl().comm_async_error(comm, &result) == 0 && result == 0;
    });
  });
}

void World::run_rank(group::Group& group, int rank) {
  Story& story = stories[static_cast<size_t>(rank)];
  set_group(rank, &group);
  Training training(group, rank, way);
  try {
    training.commit();
    story.is_committed = true;
    if (rank == 0 && after.empty()) start = training.values();
    for (; story.steps < kSteps; ++story.steps) {
      training.step();
      if (rank == 0 && after.size() < kSteps) after.push_back(training.values());
    }
    training.save();
    group.barrier();
  } catch (const Error& error) {
    story.status = error.status();
    story.text = error.text();
    if (since_ns != 0) story.ms = (os::now_ns() - since_ns) / 1'000'000;
    if (!is_held || rank != bad) end_lent(rank);  // as its owner should
  }
  if (!is_held || rank != bad) story.values = training.values();
}

void World::run() {
  const auto mine = [&](int rank, ddp_group_options& asked) { asked.nccl_comm = comms[static_cast<size_t>(rank)]; };
  run_gpu_groups_with(kRanks, options, mine, [&](group::Group& group, int rank) {
    run_rank(group, rank);
    const int64_t ms = ms_of([&] { group.close(); });
    set_group(rank, nullptr);
    if (!is_held || rank != bad) end_lent(rank);
    if (!is_held || rank == bad) return;
    expect(ms < 4000, "the group is left within " + std::to_string(ms) + " ms");
    if (++done == kRanks - 1) fake_gpu::end_death();
  });
  fake_gpu::end_death();
  for (int rank = 0; rank < kRanks; ++rank) end_lent(rank);
}

/// Names of NCCL's calls on a device, in order.
std::vector<std::string> nccl_calls(int device) {
  std::vector<std::string> names;
  const std::string mark = "[" + std::to_string(device) + "] nccl.";
  for (const std::string& line : fake_gpu::log())
    if (line.rfind(mark, 0) == 0 && line.find("comm_async_error") == std::string::npos)
      names.push_back(line.substr(mark.size(), line.find(' ', mark.size()) - mark.size()));
  return names;
}

/// One training without a fault; which calls its ranks make.
std::array<std::vector<std::string>, kRanks> run_well(World& world) {
  const FakeGpus gpus;
  world.lend();
  fake_gpu::clear_log();
  world.run();
  for (const Story& story : world.stories) expect_equal(story.text, std::string(), "nothing fails");
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
  return {nccl_calls(0), nccl_calls(1)};
}

std::string beginnings(const Values& values) {
  std::string text;
  for (const std::vector<float>& each : values) text += " " + std::to_string(each.front());
  return text;
}

/// Of one step: the one before the last that returned (whose kernels may have been stopped), that one, or the next.
void expect_whole(const World& good, const Story& story, const std::string& what) {
  bool is_whole = story.values == good.start;
  for (int step = std::max(1, story.steps - 1); step <= std::min(kSteps, story.steps + 1); ++step)
    is_whole = is_whole || story.values == good.after[static_cast<size_t>(step) - 1];
  expect(is_whole, what + ": parameters of one step, after " + std::to_string(story.steps) + "; they begin" +
                       beginnings(story.values));
}

/// Sharded, each rank has written its own slice before the others' are there: every element is of one of the steps.
void expect_of_steps(const World& good, const Story& story, const std::string& what) {
  for (size_t p = 0; p < kShapes.size(); ++p)
    for (size_t i = 0; i < story.values[p].size(); ++i) {
      bool is_known = story.values[p][i] == good.start[p][i];
      for (const Values& each : good.after) is_known = is_known || story.values[p][i] == each[p][i];
      expect(is_known, what + ": element " + std::to_string(i) + " of parameter " + std::to_string(p));
    }
}

void expect_values(const World& good, const Story& story, const std::string& what) {
  if (!story.is_committed) return;             // rank 0's values were on their way into the parameters
  if (good.way.shard && good.way.own) return;  // what is gathered in place is undefined when that breaks off
  good.way.shard ? expect_of_steps(good, story, what) : expect_whole(good, story, what);
}

constexpr std::array<Way, 7> kWays = {{{},
                                       {.shard = true},
                                       {.shard = true, .in_backward = true},
                                       {.reproducible = true},
                                       {.shard = true, .own = true},
                                       {.in_backward = true, .own = true},
                                       {.lent = true}}};

int64_t number_of(const char* name, int64_t usual) {
  const char* const text = std::getenv(name);
  return text == nullptr ? usual : std::max(1, std::atoi(text));
}
/// DDP_TEST_EVERY=1: every call; else every ninth, so that all kinds of calls come.
int64_t stride() { return number_of("DDP_TEST_EVERY", 9); }
/// DDP_TEST_SHARDS=6 and DDP_TEST_SHARD=1 to 6: a part of them.
bool is_mine(int64_t at) {
  const int64_t shards = number_of("DDP_TEST_SHARDS", 1);
  return at % shards == number_of("DDP_TEST_SHARD", 1) - 1;
}

using Sweep = std::function<void(World&, const World&, int64_t nth, const std::string& what)>;
void sweep(int64_t offset, const Sweep& body) {
  int64_t at = 0;
  // DDP_TEST_WAYS=7: also those that do not hold what they promise in every call yet.
  const auto ways = std::min(kWays.size(), static_cast<size_t>(number_of("DDP_TEST_WAYS", 4)));
  for (size_t w = 0; w < ways; ++w)
    for (int bad = 0; bad < kRanks; ++bad) {
      World good;
      good.way = kWays[w];
      const auto calls = run_well(good)[static_cast<size_t>(bad)];
      const auto first = 1 + (offset + static_cast<int64_t>(w) + bad) % stride();
      for (int64_t nth = first; nth <= static_cast<int64_t>(calls.size()); nth += stride()) {
        if (!is_mine(at++)) continue;
        const std::string what = kWays[w].text() + ": call " + std::to_string(nth) + " of rank " + std::to_string(bad) +
                                 ", " + calls[static_cast<size_t>(nth) - 1];
        if (std::getenv("DDP_TEST_EVERY") != nullptr) print_message("%s\n", what.c_str());
        World world;
        world.way = kWays[w];
        world.bad = bad;
        world.after = good.after;
        const int64_t ms = ms_of([&] { body(world, good, nth, what); });
        if (std::getenv("DDP_TEST_EVERY") != nullptr)
          print_message("  %d ms, survivors knew after %d\n", static_cast<int>(ms),
                        static_cast<int>(world.stories[static_cast<size_t>(1 - bad)].ms));
      }
    }
}

/// The other ranks wait for their own GPUs then, where NCCL connects or rank 0's values come, and do not know who is late.
bool meets_in_nccl(const std::string& what) {
  return what.find("comm_init") != std::string::npos || what.find("broadcast") != std::string::npos ||
         what.find("call 2 of rank 1, all_reduce") != std::string::npos ||
         what.find("call 3 of rank 0, all_reduce") != std::string::npos;
}

void expect_survivors_well(const World& world, const World& good, ddp_status status, const std::string& what) {
  expect_no_library_threads(what);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Story& story = world.stories[static_cast<size_t>(rank)];
    if (rank == world.bad) continue;
    expect_values(good, story, what);
    if (story.status == DDP_OK) {
      expect_equal(story.steps, kSteps, what + ": all is done");
      continue;
    }
    expect_equal(std::string(status_name(story.status)), std::string(status_name(status)), what + ": " + story.text);
    if (status != DDP_ERROR_TIMED_OUT || !meets_in_nccl(what))
      expect_contains(story.text, "rank " + std::to_string(world.bad));
    expect(story.ms < 3000, what + ": known after " + std::to_string(story.ms) + " ms");
    expect_equal(fake_gpu::live(rank).total(), int64_t{0}, what + ": left on the device of rank " + std::to_string(rank));
  }
}

bool releases(const std::string& what) {
  for (const char* const name : {"mem_free", "comm_abort", "comm_finalize", "comm_destroy"})
    if (what.find(name) != std::string::npos) return true;
  return false;
}

void a_rank_may_end_in_any_call_of_nccl(void**) {
  sweep(0, [](World& world, const World& good, int64_t nth, const std::string& what) {
    const FakeGpus gpus;
    world.lend();
    world.is_held = true;
    fake_gpu::let_die({world.bad, nth, [&world] { world.tell_of_end(); }});
    world.run();
    FakeGpus::expect_correct(what);
    expect(world.since_ns != 0 || releases(what), what + ": it comes to that");
    expect_survivors_well(world, good, DDP_ERROR_PEER_FAILED, what);
  });
}

/// Nobody says anything: the others find out when the time is up.
void a_rank_may_stay_in_any_call_of_nccl(void**) {
  sweep(1, [](World& world, const World& good, int64_t nth, const std::string& what) {
    if (nth % (2 * stride()) >= stride()) return;  // it takes its time
    const FakeGpus gpus;
    world.lend();
    world.is_held = true;
    world.options.timeout_ms = world.options.rendezvous_timeout_ms = 400;
    fake_gpu::let_die({world.bad, nth, [&world] { world.since_ns = os::now_ns(); }});
    world.run();
    FakeGpus::expect_correct(what);
    if (world.since_ns == 0) return;  // a slow machine: the time was up before that
    expect_survivors_well(world, good, DDP_ERROR_TIMED_OUT, what);
  });
}

void any_call_of_nccl_may_fail(void**) {
  for (const int32_t kind : {DDP_NCCL_REMOTE, DDP_NCCL_FAILED})
    sweep(kind, [kind](World& world, const World& good, int64_t nth, const std::string& what) {
      const FakeGpus gpus;
      world.lend();
      fake_gpu::inject({"nccl.*", nth, 1, kind, world.bad});
      const int64_t ms = ms_of([&] { world.run(); });
      expect(ms < 5000, what + ": takes " + std::to_string(ms) + " ms");
      // Of a group with a call that failed the fake carries out the rest, which NCCL would not.
      if (!world.way.reproducible) FakeGpus::expect_correct(what);
      for (const Story& story : world.stories) {
        expect_values(good, story, what);
        expect(story.status == DDP_OK ? story.steps == kSteps : !story.text.empty(), what + ": a status");
      }
      const Story& other = world.stories[static_cast<size_t>(1 - world.bad)];
      const std::string number = std::to_string(world.bad);
      if (other.status != DDP_OK && !meets_in_nccl(what))
        expect(other.text.find("rank " + number) != std::string::npos, what + ": " + other.text);
      expect_no_library_threads(what);
      if (!releases(what)) expect_equal(fake_gpu::live().total(), int64_t{0}, what + ": what is left");
    });
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(a_rank_may_end_in_any_call_of_nccl),
      ddp_test(a_rank_may_stay_in_any_call_of_nccl),
      ddp_test(any_call_of_nccl_may_fail),
  };
  return cmocka_run_group_tests_name("gpu_nccl_sweep", tests, nullptr, nullptr);
}
