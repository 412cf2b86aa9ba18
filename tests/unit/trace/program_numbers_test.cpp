// SPDX-License-Identifier: Apache-2.0
// Numbers of the program: their names, their limits, and that a reader of the live page has them.
#include "trace/program_numbers.hpp"

#include "support/check.hpp"
#include "support/file_faults.hpp"

using trace::LiveFile;
using trace::ProgramNumber;
using trace::ProgramNumbers;

std::vector<ProgramNumber> read(const TemporaryFolder& folder) {
  const auto page = trace::read_live(folder.file("rank-0.live"));
  expect(page.has_value(), "a page");
  return page->program;
}

ddp_case(names_are_short_and_plain) {
  for (const char* name : {"a", "loss", "train/top-5_acc.1", "GPU:0"}) expect(ProgramNumbers::is_name(name), name);
  expect(ProgramNumbers::is_name(std::string(63, 'x')) && !ProgramNumbers::is_name(std::string(64, 'x')), "63 bytes");
  for (const char* name : {"", " ", "a b", "a\n", "a\"", "ä", "a{b}"}) expect(!ProgramNumbers::is_name(name), name);
}

ddp_case(a_reader_has_the_last_values) {
  const TemporaryFolder folder;
  const auto live = LiveFile::claim(folder.path(), 0, "h", 2);
  live->set_group("gan");
  ProgramNumbers numbers;
  expect(numbers.log("before", 1), "without a page");
  expect(numbers.log("before", 1.5), "without a page");
  numbers.attach(folder.file("rank-0.live"));
  numbers.attach(folder.file("rank-0.live"));
  expect(numbers.log("loss", 3) && numbers.log("loss", -2.5) && numbers.log("bad", NAN), "in the page");
  const std::vector<ProgramNumber> found = read(folder);
  expect_equal(found.size(), size_t{3}, "names");
  expect(std::string(found[0].name) == "before" && found[0].value == 1.5 && found[0].times == 2, "logged before the page");
  expect(std::string(found[1].name) == "loss" && found[1].value == -2.5 && found[1].times == 2, "the last value");
  expect(std::isnan(found[2].value), "not a number");
  expect_equal(trace::read_live(folder.file("rank-0.live"))->group, std::string("gan"), "the group");
}

ddp_case(there_is_a_limit_with_a_page_and_without) {
  const TemporaryFolder folder;
  const auto live = LiveFile::claim(folder.path(), 0, "h", 2);
  for (const bool paged : {false, true}) {
    ProgramNumbers numbers;
    if (paged) numbers.attach(folder.file("rank-0.live"));
    for (size_t i = 0; i < ProgramNumber::kMost; ++i) expect(numbers.log("n" + std::to_string(i), 1), "a name");
    expect(!numbers.log("one-more", 1), "too many");
    expect(numbers.log("n0", 2), "a known name");
  }
}

ddp_case(threads_agree_on_the_place_of_a_name) {
  const TemporaryFolder folder;
  const auto live = LiveFile::claim(folder.path(), 0, "h", 2);
  ProgramNumbers numbers;
  numbers.attach(folder.file("rank-0.live"));
  constexpr int kThreads = 4, kNames = 16, kRounds = 200;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kRounds * kNames; ++i)
        expect(numbers.log("n" + std::to_string((i + 5 * thread) % kNames), i), "a name");
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<ProgramNumber> found = read(folder);
  expect_equal(found.size(), size_t{kNames}, "names");
  for (const ProgramNumber& each : found) expect_equal(each.times, int64_t{kThreads} * kRounds, each.name);
}

ddp_case(a_fork_and_another_process_write_nothing) {
  const TemporaryFolder folder;
  const auto live = LiveFile::claim(folder.path(), 0, "h", 2);
  ProgramNumbers numbers;
  numbers.attach(folder.file("rank-0.live"));
  expect(numbers.log("loss", 1), "the process itself");
  const pid_t child = fork();
  if (child == 0) {
    ProgramNumbers own;
    own.attach(folder.file("rank-0.live"));  // the page of its parent
    _exit(numbers.log("loss", 2) && own.log("loss", 3) ? 0 : 1);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && status == 0, "the fork");
  expect(read(folder).size() == 1 && read(folder)[0].value == 1, "the value of the process");
}
