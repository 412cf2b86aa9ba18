// SPDX-License-Identifier: Apache-2.0
// A process knows itself from its forks, and objects that are made once for a process are made again in each fork.
#include "os/process.hpp"

#include <sys/syscall.h>

#include "support/check.hpp"
#include "support/procs.hpp"

ddp_case(a_process_keeps_its_number) {
  const uint64_t number = os::process_number();
  expect(number >= 1, "numbers begin with 1");
  std::vector<std::thread> threads;
  std::atomic<int> others{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { others += os::process_number() != number; });
  for (std::thread& thread : threads) thread.join();
  expect_equal(others.load(), 0, "threads that saw another number");
}

std::string in_a_fork(const std::function<std::string()>& body) {
  Procs procs(1, [&](int, Reporter&) { return body(); });
  return procs.wait().at(0).text;
}

ddp_case(a_fork_and_a_fork_of_it_have_greater_numbers) {
  const uint64_t mine = os::process_number();
  const std::string said = in_a_fork([mine] {
    const uint64_t child = os::process_number();
    if (child <= mine) return std::string("a fork took itself for its parent");
    const std::string below =
        in_a_fork([child] { return std::string(os::process_number() > child ? "greater" : "not greater"); });
    return child == os::process_number() ? below : std::string("the number of the fork changed");
  });
  expect_equal(said, std::string("greater"), "what the forks say");
  expect_equal(os::process_number(), mine, "the number after the forks");
}

/// As programs do that avoid the handlers of fork().
ddp_case(a_fork_by_the_bare_system_call_is_seen) {
  const uint64_t mine = os::process_number();
  int pipes[2];
  expect(pipe(pipes) == 0, "a pipe");
  if (syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
    const char said = os::process_number() > mine ? 'y' : 'n';
    _exit(write(pipes[1], &said, 1) == 1 ? 0 : 1);
  }
  char said = '?';
  expect(read(pipes[0], &said, 1) == 1 && said == 'y', "the fork has a number of its own");
  close(pipes[0]);
  close(pipes[1]);
}

ddp_case(something_is_made_once_in_every_process) {
  static os::PerProcess once;
  static std::atomic<int> made{0};
  const auto enter = [] { once.enter([] { ++made; }); };
  enter();
  enter();
  expect_equal(made.load(), 1, "how often here");
  const std::string said = in_a_fork([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(enter);
    for (std::thread& thread : threads) thread.join();
    return std::to_string(made.load());
  });
  expect_equal(said, std::string("2"), "how often in the fork, with the parent's time");
  expect_equal(made.load(), 1, "how often here, after the fork");
}
