// SPDX-License-Identifier: Apache-2.0
// What exit() runs, when, in which process, and for how long it waits.
#include "os/at_exit.hpp"

#include "support/check.hpp"

// What a child has done, in its exit code.
int code = 0;
void add(int digit) { code = code * 10 + digit; }
void give_code() { _exit(code); }

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// The exit code of a process in which `body` runs, and exit() gives what add() noted; -1: a signal ended it.
int run(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    code = 0;
    std::atexit(give_code);
    body();
    std::exit(99);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child, "the child");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

ddp_case(it_runs_once_and_before_what_was_set_up_in_time) {
  const int order = run([] {
    std::atexit([] { add(3); });
    os::at_exit([] { add(2); });
    std::atexit([] { add(1); });
    os::at_exit([] { add(9); });  // the first counts
  });
  expect_equal(order, 123, "behind later handlers, before earlier ones");
  const int first = run([] {
    os::at_exit([] { add(1); });
    std::atexit([] { add(2); });  // of a library that was opened meanwhile
    os::be_first_at_exit();
  });
  expect_equal(first, 12, "before those of a library");
  expect_equal(run([] { os::be_first_at_exit(); }), 0, "nobody asked for anything");
}

ddp_case(a_fork_does_what_it_was_asked_itself) {
  const auto in_a_fork = [](const std::function<void()>& body) {
    return run([&] {
      os::at_exit([] { add(1); });
      const pid_t child = fork();
      if (child == 0) {
        body();
        std::exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      _exit(WEXITSTATUS(status));
    });
  };
  expect_equal(in_a_fork([] {}), 0, "not what its parent was asked");
  expect_equal(in_a_fork([] { os::at_exit([] { add(5); }); }), 5, "its own");
}

ddp_case(exit_waits_for_who_is_inside_a_library_and_nobody_enters_it_later) {
  const int result = run([] {
    os::at_exit([] {});
    std::thread([hold = std::make_shared<os::HoldExit>()]() mutable {
      sleep_ms(200);
      add(1);
      hold.reset();
    }).detach();
    std::atexit([] { sleep_ms(20); });
  });
  expect_equal(result, 1, "it has come out");
  expect_equal(run([] {
                 std::atexit([] { add(os::HoldExit() ? 1 : 2); });
                 os::at_exit([] { add(os::HoldExit() ? 3 : 4); });
               }),
               32, "while it runs, and later");
}

ddp_case(exit_goes_on_when_the_time_is_up) {
  const auto begin = std::chrono::steady_clock::now();
  expect_equal(run([] { os::at_exit([] { sleep_ms(60'000); }); }), 0, "it goes on");
  const auto took = std::chrono::steady_clock::now() - begin;
  expect(took > std::chrono::milliseconds(4'900) && took < std::chrono::seconds(20), "5 s");
}
