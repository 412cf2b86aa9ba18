// SPDX-License-Identifier: Apache-2.0
// A training of three ranks that others join, or try to. However those end, the three continue in their processes, and
// their weights at the end are those of the replay.
#pragma once

#include <new>

#include "support/survivor.hpp"

namespace ddp::test {

class JoinedTraining : NotCopied {
 public:
  static constexpr int kRanks = 3;
  static constexpr uint64_t kAlone = 0b111;  // members of a step that the three have made
  static constexpr int kJoiner = 3;          // id of a rank that joins

  JoinedTraining()
      : shared_(new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared),
        plan_(plan()),
        ranks_(kRanks, [this](int id, Reporter& report) {
          Survival mine = plan_;
          if (id == 0)
            mine.made = [this](int64_t step, uint64_t members) {
              shared_->members = members;
              shared_->step = step;
            };
          return write_story(Survivor(mine, id, to(report)).run());
        }) {
    wait_for(kAlone, "the training begins");
  }
  ~JoinedTraining() { munmap(shared_, sizeof(Shared)); }

  /// For a rank that joins; it may be changed.
  [[nodiscard]] Survival joiner() const { return plan_; }
  /// In a process of its own. The text is its story, or the error.
  [[nodiscard]] std::string join(const Survival& with, Reporter& report, int id = kJoiner) const {
    return write_story(Survivor(with, id, to(report), true).run());
  }

  /// Until these ranks have made two more steps together.
  void wait_for(uint64_t members, const std::string& where) {
    const int64_t seen = shared_->step;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (shared_->members != members || shared_->step < seen + 2) {
      for (int id = 0; id < kRanks; ++id)
        if (ranks_.ended(id)) throw std::runtime_error(where + ": rank " + std::to_string(id) + " has ended: " + told(id));
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error(where + ": no step of the ranks " + std::to_string(members) + "; the last is step " +
                                 std::to_string(shared_->step) + " of " + std::to_string(shared_->members));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void must_go_on(const std::string& where) { wait_for(kAlone, where); }

  /// The three end, with the weights of the replay.
  void end() {
    shared_->ending.asked = true;
    const std::vector<ProcResult> results = ranks_.wait(60'000);
    for (const ProcResult& result : results) expect(result.exit_code == 0, result.describe() + "\n" + result.said);
    const Story first = read_story(results[0].text);
    for (const ProcResult& result : results) expect(read_story(result.text).hash == first.hash, "the same weights");
    expect(first.hash == replay(first.members), "the weights of the replay: " + results[0].text);
  }

 private:
  struct Shared {
    SurvivorEnding ending;
    std::atomic<uint64_t> members{0};  // of the last step
    std::atomic<int64_t> step{0};
  };

  Survival plan() {
    Survival made;
    made.rendezvous = "file://" + folder_.path() + "/meet";
    made.ranks = kRanks;
    made.ending = &shared_->ending;
    made.pause_ms = 2;
    made.dead_after_ms = 5'000;  // deaths are seen, and a rank may get no core for a while
    if (ddp_recover_options_init(&made.rule, sizeof made.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
    made.rule.wait_ms = 10'000;
    made.rule.cool_down_ms = 0;
    return made;
  }
  std::string told(int id) {
    const ProcResult& result = ranks_.wait_one(id);
    return result.describe() + "\n" + result.said;
  }

  Folder folder_;
  Shared* const shared_;
  const Survival plan_;
  Procs ranks_;
};

}  // namespace ddp::test
