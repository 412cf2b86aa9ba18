// SPDX-License-Identifier: Apache-2.0
// Looks at pages of ranks that were started again, have recovered, or never made one.

#include "ddprun/observer.hpp"
#include "support/check.hpp"
#include "trace/program_numbers.hpp"

using namespace ddp::ddprun;
using ddp::trace::LiveFile;
using ddp::trace::put;

class Folder : NotCopied {
 public:
  Folder() { expect(mkdtemp(name_.data()) != nullptr, "a folder"); }
  ~Folder() { std::filesystem::remove_all(name_); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_ = "/tmp/lookout-XXXXXX";
};

ddp_case(a_rank_without_a_page_has_memory) {
  const Folder folder;
  Lookout lookout(folder.name());
  const Look look = lookout.look({{0, getpid()}, {1, -1}});
  expect(look.ranks.size() == 2 && look.ranks[0].resident_kib > 100 && look.ranks[0].place == -1, "this process");
  expect(look.ranks[1].resident_kib == 0 && look.ranks[1].since == Counts(), "none");
}

ddp_case(counts_are_since_the_last_look) {
  const Folder folder;
  Lookout lookout(folder.name());
  auto live = LiveFile::claim(folder.name(), 3, "host", 4);
  put(live->page().place.rank, 1);
  put(live->page().work.steps, int64_t{10});
  live->add_wait(2, 500);
  live->add_wait(1, 77);  // itself
  Look look = lookout.look({{3, getpid()}});
  expect(look.ranks[0].since.steps == 10 && look.ranks[0].waited_ns == 0, "before its group has a size");
  put(live->page().place.size, 4);
  look = lookout.look({{3, getpid()}});
  expect(look.ranks[0].since.steps == 0 && look.ranks[0].place == 1, "nothing new");
  expect(look.ranks[0].waited_ns == 500 && look.awaited_ns.at(2) == 500 && look.awaited_ns.at(1) == 0, "it waited");
  put(live->page().work.steps, int64_t{25});
  live->add_wait(2, 1);
  look = lookout.look({{3, getpid()}});
  expect(look.ranks[0].since.steps == 15 && look.ranks[0].waited_ns == 1, "the rest");
}

ddp_case(waits_of_another_generation_do_not_count) {
  const Folder folder;
  Lookout lookout(folder.name());
  auto live = LiveFile::claim(folder.name(), 0, "host", 3);
  put(live->page().place.size, 3);
  put(live->page().place.rank, 0);
  put(live->page().place.generation, int64_t{1});
  static_cast<void>(lookout.look({{0, getpid()}}));
  live->add_wait(1, 3'000);  // for the rank that has died
  put(live->page().place.generation, int64_t{2});
  put(live->page().place.size, 2);
  Look look = lookout.look({{0, getpid()}});
  expect(look.ranks[0].waited_ns == 0, "place 1 is another rank's now");
  live->add_wait(1, 8);
  look = lookout.look({{0, getpid()}});
  expect(look.ranks[0].waited_ns == 8, "and what follows counts");
}

ddp_case(a_rank_that_was_started_again_counts_on) {
  const Folder folder;
  Lookout lookout(folder.name());
  {
    auto live = LiveFile::claim(folder.name(), 0, "host", 2);
    put(live->page().work.steps, int64_t{40});
    put(live->page().made.pid, int32_t{-5});  // of a process that has died
    expect(lookout.look({{0, getpid()}}).ranks[0].since.steps == 40, "the first life");
  }
  expect(lookout.look({{0, getpid()}}).ranks[0].since.steps == 0, "still its page");
  auto live = LiveFile::claim(folder.name(), 0, "host", 2);
  put(live->page().work.steps, int64_t{3});
  expect(lookout.look({{0, getpid()}}).ranks[0].since.steps == 3, "the second life");
}

ddp_case(numbers_of_the_program_are_seen_when_they_are_logged) {
  const Folder folder;
  Lookout lookout(folder.name());
  const auto live = LiveFile::claim(folder.name(), 0, "host", 2);
  live->set_group("gan");
  ddp::trace::ProgramNumbers numbers;
  numbers.attach(folder.name() + "/rank-0.live");
  expect(numbers.log("loss", 1) && numbers.log("loss", 0.5), "logged");
  Look look = lookout.look({{0, getpid()}});
  expect(look.ranks[0].group == "gan" && look.ranks[0].program.size() == 1, "one number");
  expect(look.ranks[0].program[0].value == 0.5 && look.ranks[0].program[0].times == 2, "its last value");
  expect(lookout.look({{0, getpid()}}).ranks[0].program.empty(), "no news");
  expect(numbers.log("acc", 9) && numbers.log("loss", 0.25), "logged");
  look = lookout.look({{0, getpid()}});
  expect(look.ranks[0].program.size() == 2 && look.ranks[0].program[0].times == 1, "since the last look");
}
