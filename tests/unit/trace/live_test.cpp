// SPDX-License-Identifier: Apache-2.0
#include "trace/live.hpp"

#include "os/clock.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "trace/watch.hpp"

using trace::LiveFile;
using trace::LivePage;

trace::LiveNumbers numbers_at(const std::string& path) {
  std::optional<trace::LiveNumbers> found = trace::read_live(path);
  expect(found.has_value(), "a page at " + path);
  return *found;
}

ddp_case(what_is_written_can_be_read_at_once) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rank-3.live");
  const std::unique_ptr<LiveFile> file = LiveFile::claim(folder.path(), 3, "a-host", 4);
  trace::put(file->page().place.rank, 3);
  trace::put(file->page().place.size, 4);
  trace::add(file->page().passes.count, 2);
  trace::add(file->page().passes.count, 5);
  file->add_wait(1, 70);
  file->add_wait(1, 7);
  file->add_wait(-1, 1);
  file->add_wait(1 << 20, 1);
  const trace::LiveNumbers numbers = numbers_at(path);
  expect_equal(numbers.place.rank, 3, "rank");
  expect_equal(numbers.passes.count, 7, "passes");
  expect_equal(std::string(numbers.made.host), "a-host", "host");
  expect_equal(numbers.made.pid, getpid(), "pid");
  expect(numbers.made.at_ns > 0 && numbers.made.at_ns <= os::now_ns(), "when it was made");
  expect_equal(numbers.waited_ns.size(), size_t{4}, "ranks");
  expect_equal(numbers.waited_ns[1], 77, "waited for rank 1");
  expect_equal(numbers.waited_ns[0] + numbers.waited_ns[2] + numbers.waited_ns[3], 0, "waited for others");
}

ddp_case(one_group_of_a_process_writes_it_at_a_time) {
  const TemporaryFolder folder;
  std::unique_ptr<LiveFile> first = LiveFile::claim(folder.path(), 0, "h", 2);
  trace::add(first->page().work.steps, 3);
  expect(LiveFile::claim(folder.path(), 0, "h", 2) == nullptr, "held");
  expect_equal(numbers_at(folder.file("rank-0.live")).place.held, 1, "held after a second group has asked");
  first.reset();
  const std::unique_ptr<LiveFile> second = LiveFile::claim(folder.path(), 0, "h", 2);
  expect(second != nullptr, "free again");
  trace::add(second->page().work.steps, 1);
  expect_equal(numbers_at(folder.file("rank-0.live")).work.steps, 4, "steps go on");
}

ddp_case(a_process_in_the_place_of_a_dead_one_begins_anew) {
  const TemporaryFolder folder;
  const pid_t dead = fork();
  if (dead == 0) {
    trace::add(LiveFile::claim(folder.path(), 0, "h", 1).release()->page().work.steps, 9);
    _exit(0);
  }
  waitpid(dead, nullptr, 0);
  expect_equal(numbers_at(folder.file("rank-0.live")).work.steps, 9, "steps of the dead one");
  const std::unique_ptr<LiveFile> next = LiveFile::claim(folder.path(), 0, "h", 1);
  expect(next != nullptr, "the place is free");
  expect_equal(numbers_at(folder.file("rank-0.live")).work.steps, 0, "steps of the next one");
}

ddp_case(a_fork_writes_nothing) {
  const TemporaryFolder folder;
  auto watch = std::make_unique<trace::Watch>(trace::Watch::live_of_launcher(folder.path().c_str(), 0, "h", 2));
  watch->regroup(0, 2, 0, trace::kSharedMemory);
  const pid_t child = fork();
  if (child == 0) {
    watch->void_pass();
    watch->enter(&folder, 1);
    watch->end_step(0);
    watch->end_pass({1, 1, 1, 1, 1, 1});
    watch->add_transport(trace::kNccl);
    watch.reset();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  const trace::LiveNumbers numbers = numbers_at(folder.file("rank-0.live"));
  expect_equal(numbers.passes.voids + numbers.passes.count + numbers.work.steps + numbers.place.in_call, 0,
               "what the fork has written");
  expect_equal(numbers.place.held, 1, "held by the parent");
  expect_equal(numbers.place.transports, int32_t{trace::kSharedMemory}, "transports");
}

ddp_case(transports_are_those_of_the_newest_group) {
  const TemporaryFolder folder;
  trace::Watch watch(trace::Watch::live_of_launcher(folder.path().c_str(), 0, "h", 4));
  const auto transports = [&] { return numbers_at(folder.file("rank-0.live")).place.transports; };
  expect_equal(transports(), 0, "before there is a group");
  watch.regroup(0, 4, 1, trace::kSharedMemory | trace::kGloo);
  watch.add_transport(trace::kNccl);
  watch.add_transport(trace::kNccl);
  expect_equal(transports(), trace::kSharedMemory | trace::kGloo | trace::kNccl, "several");
  watch.regroup(0, 2, 2, trace::kSharedMemory);
  expect_equal(transports(), int32_t{trace::kSharedMemory}, "after a recovery");
}

ddp_case(what_cannot_be_written_is_left_out) {
  const TemporaryFolder folder;
  expect(trace::Watch::live_of_launcher((folder.path() + "/none").c_str(), 0, "h", 1) == nullptr, "no such folder");
  expect(trace::Watch::live_of_launcher(nullptr, 0, "h", 1) == nullptr, "no folder is named");
  for (int64_t at = 1; at <= 3; ++at) {
    const FileFaults faults({.at = at, .count = 1000, .code = ENOSPC});
    expect(trace::Watch::live_of_launcher(folder.path().c_str(), 0, "h", 1) == nullptr, "no space");
  }
  expect(!trace::read_live(folder.file("rank-0.live")).has_value(), "no page was left");
}

ddp_case(what_is_no_page_is_not_read) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rank-0.live");
  for (const size_t bytes : {size_t{0}, size_t{10}, sizeof(LivePage), size_t{100'000}}) {
    std::ofstream(path, std::ios::binary) << std::string(bytes, '\xff');
    expect(!trace::read_live(path).has_value(), "garbage of " + std::to_string(bytes) + " bytes");
  }
  LivePage page;
  page.made.magic = LivePage::kMagic;
  page.made.version = LivePage::kVersion;
  page.made.head_bytes = sizeof page;
  page.place.size = page.made.most_ranks = INT32_MAX;
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&page), sizeof page);
  expect(!trace::read_live(path).has_value(), "more ranks than the file has");
}
