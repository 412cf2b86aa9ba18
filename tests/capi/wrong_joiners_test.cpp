// SPDX-License-Identifier: Apache-2.0
// A rank that joins harms no other rank: it may die at any system call of its joining, or it may bring
// another model, other options, no port, no memory to share, or never come to its commit. The others recover without it, in
// the one call of ddp_group_recover that they make anyway, and only that rank gets the error.
//
//   test.capi.wrong_joiners         a sample of the system calls
//   test.capi.wrong_joiners 200     200 kills, at calls that are spread over the joining
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "support/check.hpp"
#include "support/joined_training.hpp"
#include "support/on_processes.hpp"
#include "support/unfit_rank.hpp"

int64_t kills_wanted = 12;

constexpr long kMark = -777;  // getpgid of it: the rank has joined, and made a step

/// In the joining process, which its parent traces.
[[noreturn]] void join_traced(const JoinedTraining& training) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
  (void)raise(SIGSTOP);
  try {
    Survival mine = training.joiner();
    mine.made = [](int64_t, uint64_t) { (void)syscall(SYS_getpgid, kMark); };
    static_cast<void>(Survivor(
                          mine, JoinedTraining::kJoiner, [](const std::string&) {}, true)
                          .run());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the rank that joins: %s\n", error.what());
  }
  _exit(1);
}

/// A rank joins and is killed at the entry of its n-th system call, or when it has made a step. Gives the calls until then;
/// -1 if processes cannot be traced here.
int64_t join_and_die_at(const JoinedTraining& training, int64_t at) {
  const pid_t joiner = fork();
  if (joiner == 0) join_traced(training);
  int status = 0;
  int64_t calls = 0;
  if (waitpid(joiner, &status, __WALL) != joiner || !WIFSTOPPED(status)) return -1;
  (void)ptrace(PTRACE_SETOPTIONS, joiner, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  bool enters = true;
  for (long signal = 0;;) {
    if (ptrace(PTRACE_SYSCALL, joiner, nullptr, signal) != 0 || waitpid(joiner, &status, __WALL) != joiner) break;
    if (!WIFSTOPPED(status)) return calls;
    signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
    if (signal != 0) continue;
    enters = !enters;
    if (enters) continue;
    __ptrace_syscall_info call{};
    (void)ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), joiner, sizeof call, &call);
    const bool joined = call.entry.nr == SYS_getpgid && static_cast<int32_t>(call.entry.args[0]) == kMark;
    if (joined || ++calls == at) break;
  }
  (void)kill(joiner, SIGKILL);
  (void)waitpid(joiner, &status, __WALL);
  return calls;
}

ddp_case(a_rank_dies_at_any_system_call_of_its_joining) {
  JoinedTraining training;
  const int64_t all = join_and_die_at(training, INT64_MAX);
  if (all < 0) return (void)std::printf("processes cannot be traced here\n");
  training.must_go_on("a rank that has joined dies");
  for (int64_t i = 0; i < kills_wanted; ++i) {
    const int64_t at = 1 + i * all / kills_wanted;
    static_cast<void>(join_and_die_at(training, at));
    training.must_go_on("a rank that joins dies at call " + std::to_string(at) + " of " + std::to_string(all));
  }
  training.end();
}

/// The mistake of a rank that joins, and the error that it gets.
struct Wrong {
  const char* what;
  std::function<void(Survival&)> does;
  const char* status;  // "": it ends by itself, or is killed
  const char* part;    // of the text
};

std::vector<Wrong> wrongs() {
  const auto adds = [](std::function<ddp_status(ddp_group*, ddp_model*)> what) {
    return [what = std::move(what)](Survival& plan) { plan.adds = what; };
  };
  const auto asks = [](std::function<void(ddp_group_options&)> what) {
    return [what = std::move(what)](Survival& plan) { plan.asks = what; };
  };
  return {
      {"one parameter more", adds([](ddp_group*, ddp_model* model) { return add_one_parameter_more(model); }), "MISMATCH",
       "extra"},
      {"a call in the place of the commit", adds([](ddp_group* group, ddp_model*) { return ddp_group_barrier(group); }),
       "DDP_ERROR_", ""},
      {"it ends before its commit", adds([](ddp_group*, ddp_model*) -> ddp_status { _exit(0); }), "", ""},
      {"it never comes to its commit", adds([](ddp_group*, ddp_model*) -> ddp_status {
         for (;;) pause();
       }),
       "", ""},
      {"virtual ranks", asks([](ddp_group_options& options) { options.virtual_ranks = 8; }), "MISMATCH", "virtual_ranks"},
      {"another backend", asks([](ddp_group_options& options) { options.backend = DDP_BACKEND_GLOO; }), "MISMATCH",
       "backend"},
      {"no port", asks([](ddp_group_options& options) { options.first_port = options.last_port = taken_port(); }), "IO",
       "port"},
      {"no memory to share",
       [](Survival&) {
         (void)signal(SIGXFSZ, SIG_IGN);
         set_limit(RLIMIT_FSIZE, 4096);
       },
       "DDP_ERROR_", ""},
  };
}

ddp_case(a_wrong_rank_costs_itself_alone) {
  JoinedTraining training;
  for (const Wrong& wrong : wrongs()) {
    Procs joiner(1, [&](int, Reporter& report) {
      Survival mine = training.joiner();
      wrong.does(mine);
      if (const auto adds = mine.adds)
        mine.adds = [adds, &report](ddp_group* group, ddp_model* model) {
          report.say("met");
          return adds(group, model);
        };
      return training.join(mine, report);
    });
    if (*wrong.status != '\0') {
      const ProcResult result = joiner.wait(60'000).front();
      expect(result.exit_code == 1, std::string(wrong.what) + ": " + result.describe());
      for (const char* const part : {wrong.status, wrong.part})
        expect(result.text.find(part) != std::string::npos, std::string(wrong.what) + ": " + result.describe());
    } else {
      joiner.wait_for(0, "met", 60'000);
    }
    training.must_go_on(wrong.what);
  }
  training.end();
}

/// Two come at once. The right one is taken in, although it may have to come twice.
ddp_case(a_right_rank_joins_beside_a_wrong_one) {
  constexpr int kRight = 4;
  JoinedTraining training;
  Procs both(2, [&](int number, Reporter& report) {
    Survival mine = training.joiner();
    if (number == 1) return training.join(mine, report, kRight);
    mine.adds = [](ddp_group*, ddp_model* model) { return add_one_parameter_more(model); };
    return training.join(mine, report);
  });
  expect_contains(both.wait_one(0, 60'000).text, "MISMATCH");
  training.wait_for(JoinedTraining::kAlone | 1U << kRight, "the right one is in");
  training.end();
  const ProcResult right = both.wait_one(1, 60'000);
  expect(right.exit_code == 0, right.describe());
}

ddp_before_cases(if (argc > 1) kills_wanted = std::atoll(argv[1]));
