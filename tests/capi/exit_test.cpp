// SPDX-License-Identifier: Apache-2.0
// Programs that end without ddp_group_destroy. Work that needs no other rank is done, so no step is lost; exit() says
// goodbye for its rank, wherever it is called; what ends otherwise is a death. Ranks are processes, over shared memory and
// on two made-up hosts.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/no_gloo.hpp"
#include "support/public_api.hpp"

// In a fork the parent's threads are not there, so what only they point to looks like a leak.
static bool leaks_are_of_the_parent = false;
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return leaks_are_of_the_parent ? 1 : 0; }

namespace {

using namespace ddp::test;

constexpr int64_t kCount = 3000;
#ifdef __SANITIZE_THREAD__  // refuses what exit() does in a signal's handler, and new threads in a fork
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

enum class Way { kSharedMemory, kGloo, kTwoHosts };

std::vector<Way> ways() {
  if (no_gloo()) return {Way::kSharedMemory};
  return {Way::kSharedMemory, Way::kGloo, Way::kTwoHosts};
}

/// One rank with a model of one parameter, Adam and an average.
struct Training {
  Training(const Folder& folder, Way way, int its_rank, int size, bool recoverable = false) : rank(its_rank) {
    if (way == Way::kTwoHosts) setenv("DDP_TEST_HOST", std::to_string(rank % 2).c_str(), 1);
    ddp_group_options options = patient_options(rank, size);
    if (way == Way::kGloo) options.backend = DDP_BACKEND_GLOO;
    options.recoverable = recoverable ? 1 : 0;
    group = create_group("file://" + folder.path() + "/meet", options);
    OK(ddp_model_create(group, nullptr, &model));
    OK(ddp_model_add_array(model, "w", values.data(), grads.data(), kCount, nullptr));
    OK(ddp_model_commit(model, nullptr));
    OK(ddp_optimizer_create_adam(model, nullptr, nullptr, &adam));
    const double decay = 0.5;
    OK(ddp_ema_create(model, &decay, 1, &ema));
  }
  void pass(int number) {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = static_cast<float>((number + rank) % 5) - 1.5F;
    OK(ddp_model_mark_ready(model, 0, nullptr));
    OK(ddp_model_end_backward(model, nullptr));
  }
  /// Needs no other rank.
  std::string finish() {
    OK(ddp_optimizer_step(adam, nullptr));
    OK(ddp_ema_update(ema, nullptr));
    double norm = 0;
    OK(ddp_model_get_grad_norm(model, 2, &norm, nullptr));
    OK(ddp_model_zero_grad(model, nullptr));
    int64_t count = 0, hash = 0;
    OK(ddp_optimizer_get_step_count(adam, &count));
    OK(ddp_model_get_hash(model, &hash));
    return "step " + std::to_string(count) + " hash " + std::to_string(hash);
  }
  int rank;
  std::vector<float> values = std::vector<float>(kCount, 0.25F), grads = std::vector<float>(kCount);
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* adam = nullptr;
  ddp_ema* ema = nullptr;
};

void await_file(const std::string& path) {
  wait_until([&] { return std::filesystem::exists(path); });
}

void await_broken(ddp_group* group) {
  wait_until([&] { return ddp_group_status(group) != DDP_OK; });
}

std::string text_of(ddp_status expected, ddp_status status) {
  const std::string text = ddp_last_error();
  expect(status == expected, std::string(ddp_status_name(status)) + ": " + text);
  return text;
}

void expect_ends(Procs& procs, const std::vector<int>& codes) {
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (size_t rank = 0; rank < codes.size(); ++rank)
    expect(!results[rank].timed_out && results[rank].signal == 0 && results[rank].exit_code == codes[rank],
           "rank " + std::to_string(rank) + ": " + results[rank].describe());
}

/// What the program of a rank does in its end, and the sentence that other ranks get about it.
struct End {
  const char* what;
  std::function<void()> go;
  ddp_status status;
  const char* said;
};

void die() {
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}

std::vector<End> all_ends() {
  constexpr const char *kGone = "without a goodbye", *kExited = "exited without ddp_group_destroy";
  return {{"exit(0)", [] { exit(0); }, DDP_ERROR_ABORTED, kExited},
          {"exit(3)", [] { exit(3); }, DDP_ERROR_ABORTED, kExited},
          {"_exit", [] { _exit(0); }, DDP_ERROR_PEER_FAILED, kGone},
          {"quick_exit", [] { quick_exit(0); }, DDP_ERROR_PEER_FAILED, kGone},
          {"SIGTERM", die, DDP_ERROR_PEER_FAILED, kGone}};
}

ddp_case(a_step_behind_a_good_pass_is_made_whatever_became_of_the_others) {
  for (const Way way : ways())
    for (const End& end : all_ends()) {
      const Folder folder;
      Procs procs(3, [&](int rank, Reporter& report) {
        Training training(folder, way, rank, 3);
        training.pass(0);
        training.finish();
        training.pass(1);
        std::ofstream(folder.path() + "/passed" + std::to_string(rank)) << "now";
        if (rank == 1) {  // what it has sent over sockets has arrived
          await_file(folder.path() + "/passed0");
          await_file(folder.path() + "/passed2");
          end.go();
        }
        await_broken(training.group);
        report.say(training.finish());
        expect_contains(text_of(end.status, ddp_group_status(training.group)), end.said);
        // What is not there, or what needs the others, tells of the first cause.
        expect_contains(text_of(end.status, ddp_model_begin_backward(training.model, DDP_PASS_REDUCE)), end.said);
        expect_contains(text_of(end.status, ddp_group_barrier(training.group)), end.said);
        ddp_group_destroy(training.group);
        text_of(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(training.adam, nullptr));
      });
      procs.wait_one(1);
      const std::vector<ProcResult> results = procs.wait(60'000);
      expect(results[0].exit_code == 0 && results[2].exit_code == 0,
             std::string(end.what) + ": " + results[0].describe() + "; " + results[2].describe());
      expect(results[0].said == results[2].said && results[0].said.find("step 2 ") == 0, results[0].said + results[2].said);
    }
}

ddp_case(ranks_that_return_from_main_lose_no_step) {
  for (const Way way : ways())
    for (int run = 0; run < 5; ++run) {
      const Folder folder;
      Procs procs(3, [&](int rank, Reporter& report) {
        Training training(folder, way, rank, 3);
        for (int step = 0; step < 20; ++step) {
          training.pass(step);
          if (step == 19 && (rank + run) % 3 == 1) sleep_ms(run % 2 == 0 ? 2 : 200);
          const std::string state = training.finish();
          if (step == 19) report.say(state);
        }
        exit(0);
      });
      const std::vector<ProcResult> results = procs.wait(60'000);
      for (const ProcResult& result : results)
        expect(result.exit_code == 0 && result.signal == 0 && result.said == results[0].said, result.describe());
      expect(results[0].said.find("step 20 ") == 0, results[0].said);
    }
}

ddp_case(who_waits_hears_who_exited_and_who_waited) {
  for (const Way way : ways()) {
    const Folder folder;
    Procs procs(2, [&](int rank, Reporter&) {
      Training training(folder, way, rank, 2);
      if (rank == 1) sleep_ms(2000), exit(0);
      return text_of(DDP_ERROR_ABORTED, ddp_group_barrier(training.group));
    });
    const std::string text = procs.wait(20'000).front().text;
    expect_contains(text, "rank 1 (");
    expect_contains(text, "exited without ddp_group_destroy while rank 0 (");
    expect_contains(text, ") waited in ddp_group_barrier");
  }
}

ddp_case(an_exit_inside_something_says_so) {
  for (const Way way : ways())
    for (const bool in_call : {false, true}) {
      const Folder folder;
      Procs procs(2, [&](int rank, Reporter&) {
        Training training(folder, way, rank, 2);
        if (rank == 1 && in_call) {
          std::thread([&] {
            OK(ddp_group_barrier(training.group));
            _exit(9);  // it must not come back
          }).detach();
          sleep_ms(300);
          exit(0);
        }
        if (rank == 1) OK(ddp_model_begin_backward(training.model, DDP_PASS_REDUCE));
        if (rank == 1) exit(0);
        if (in_call) sleep_ms(600);
        const std::string text = text_of(DDP_ERROR_ABORTED, in_call ? ddp_model_check_replicas(training.model, nullptr)
                                                                    : ddp_group_barrier(training.group));
        expect_contains(text, in_call ? "exited in ddp_group_barrier, without ddp_group_destroy"
                                      : "exited with an open pass or request, without ddp_group_destroy");
      });
      expect_ends(procs, {0, 0});
    }
}

int32_t exit_in_update(void*, const ddp_update_slice*) {
  exit(4);
  return 0;
}

/// The function that the library has called ends the process; it may run on a thread of the library.
ddp_case(an_exit_in_a_function_of_the_program_ends_the_process) {
  for (const Way way : ways())
    for (const bool in_backward : {false, true}) {
      const Folder folder;
      Procs procs(2, [&](int rank, Reporter&) {
        Training training(folder, way, rank, 2);
        if (rank == 1) {
          ddp_optimizer* rule = nullptr;
          auto options = defaults<ddp_optimizer_options>();
          options.in_backward = in_backward ? 1 : 0;
          ddp_optimizer_destroy(training.adam);  // a parameter has one optimizer
          OK(ddp_optimizer_create_custom(training.model, nullptr, &options, nullptr, exit_in_update, nullptr, nullptr,
                                         &rule));
          training.pass(0);
          OK(ddp_optimizer_step(rule, nullptr));
        } else {
          const ddp_status passed = ddp_model_begin_backward(training.model, DDP_PASS_REDUCE);
          if (passed == DDP_OK) ddp_model_mark_ready(training.model, 0, nullptr);
          if (passed == DDP_OK) ddp_model_end_backward(training.model, nullptr);
          await_broken(training.group);
          expect_contains(text_of(DDP_ERROR_ABORTED, ddp_group_status(training.group)), "without ddp_group_destroy");
        }
      });
      expect_ends(procs, {0, 4});
    }
}

ddp_group* group_of_the_handler = nullptr;
void destroy_at_exit() { ddp_group_destroy(group_of_the_handler); }
void exit_in_handler(int) { exit(6); }

ddp_case(handlers_and_signals_find_a_group_that_can_be_destroyed) {
  for (const int order :
       {0, 1, 2}) {  // the program's handler comes before the group, behind it, or exit() comes in a signal's
    if (order == 2 && kThreadSanitizer) continue;
    const Folder folder;
    Procs procs(2, [&](int rank, Reporter& report) {
      if (order == 0) atexit(destroy_at_exit);
      Training training(folder, Way::kSharedMemory, rank, 2);
      group_of_the_handler = training.group;
      if (order == 1) atexit(destroy_at_exit);
      training.pass(0);
      if (rank == 1) {
        signal(SIGUSR1, exit_in_handler);
        report.say("trained");
        if (order == 2) ddp_group_barrier(training.group);
        exit(6);
      }
      await_broken(training.group);
      expect_contains(text_of(DDP_ERROR_ABORTED, ddp_group_status(training.group)),
                      order == 1   ? "left the group"
                      : order == 2 ? "exited in ddp_group_barrier, without"
                                   : "exited without");
      training.finish();
    });
    procs.wait_for(1, "trained");
    if (order == 2) sleep_ms(300);
    if (order == 2) procs.signal(1, SIGUSR1);
    expect_ends(procs, {0, 6});
  }
}

ddp_case(a_child_does_not_say_goodbye_for_its_parent) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, Way::kSharedMemory, rank, 2);
    training.pass(0);
    const pid_t child = fork();
    leaks_are_of_the_parent = child == 0;
    if (child == 0) exit(5);
    int status = 0;
    expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "the child");
    training.pass(1);
    OK(ddp_group_barrier(training.group));
    if (!kThreadSanitizer) {
      const pid_t own = fork();  // one with a group of its own
      leaks_are_of_the_parent = own == 0;
      if (own == 0) {
        ddp_group_options options = patient_options(0, 1);
        create_group("local://child", options);
        exit(7);
      }
      expect(waitpid(own, &status, 0) == own && WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child with a group");
    }
    OK(ddp_group_barrier(training.group));
    ddp_group_destroy(training.group);
  });
  expect_ends(procs, {0, 0});
}

ddp_case(ranks_that_can_recover_go_on_without_who_exited) {
  for (const int leaver : {0, 1, 2}) {
    const Folder folder;
    Procs procs(3, [&](int rank, Reporter& report) {
      Training training(folder, Way::kSharedMemory, rank, 3, true);
      training.pass(0);
      training.finish();
      const std::vector<float> before = training.values;
      if (leaver == 1) OK(ddp_ema_swap(training.ema, 0, nullptr));  // it dies while the others evaluate an average
      if (rank == leaver) exit(3);
      await_broken(training.group);
      OK(ddp_group_recover(training.group, nullptr, nullptr));
      expect(ddp_group_get_size(training.group) == 2, "two ranks");
      expect(training.values == before, "the parameters are in their place again");
      training.rank = ddp_group_get_rank(training.group);
      training.pass(1);
      report.say(training.finish());
      exit(0);
    });
    std::vector<int> codes(3, 0);
    codes[static_cast<size_t>(leaver)] = 3;
    expect_ends(procs, codes);
  }
}

ddp_case(sub_groups_and_stopped_ranks_hold_no_exit_up) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    Training training(folder, Way::kSharedMemory, rank, 3);
    ddp_group *pair = nullptr, *again = nullptr;
    OK(ddp_group_split(training.group, rank == 2 ? DDP_NO_COLOR : 0, rank, nullptr, &pair));
    OK(ddp_group_split(training.group, 0, rank, nullptr, &again));
    report.say("made");
    sleep_ms(1000);
    if (rank == 0) sleep_ms(60'000);  // stopped
    report.say("ends");
    exit(0);
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "made");
  procs.signal(0, SIGSTOP);
  const double begin = seconds_now();
  for (const int rank : {1, 2}) expect(procs.wait_one(rank).exit_code == 0, "it ends");
  expect(seconds_now() - begin < 12, "exit() has a limit");
}

}  // namespace
