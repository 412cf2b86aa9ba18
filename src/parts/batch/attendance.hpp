// SPDX-License-Identifier: Apache-2.0
// How this rank takes part in the passes of its model, and what it learns of the other ranks: a rank may have no batch,
// weigh less, or have run out of data and only answer (uneven_inputs).
// Threads: one at a time, but for mine(), which whoever starts a bucket calls, one at a time.
// Tested by conformance/uneven_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/uneven.h"
#include "exchange/progress_queue.hpp"
#include "group/group.hpp"
#include "parts/batch/join_header.hpp"
#include "pass/part.hpp"

namespace ddp::parts {

class Attendance {
 public:
  /// `owner`: who opens the passes (group::Channel::open_pass). `header` NULL: without uneven_inputs.
  Attendance(group::Group& group, const void* owner, std::unique_ptr<JoinHeader> header);

  // This rank.
  void begin(pass::Role role) noexcept {
    role_ = role;
    announced_ = false;
  }
  /// For the passes that reduce.
  void set_weight(double weight) noexcept { weight_ = weight; }
  [[nodiscard]] double weight() const noexcept { return weight_; }
  /// It has no batch after the next pass.
  void set_last() noexcept { last_ = true; }
  /// What goes into its bucket headers. `position`: its number among those that may be absent, its rank or virtual rank.
  [[nodiscard]] collective::Participation mine(int32_t position) noexcept;
  /// May a rank be out of data while others train (uneven_inputs)?
  [[nodiscard]] bool is_uneven() const noexcept { return join_header_ != nullptr; }

  // All ranks.
  /// A pass that reduced has ended with this. Collective, and allocates, if there are more than 63 ranks (or virtual ranks)
  /// of which some did not contribute.
  void end(const collective::Participation& all);
  void fill_report(ddp_pass_report& report) const noexcept;
  /// The ranks (or virtual ranks) that did not contribute, ascending.
  [[nodiscard]] std::vector<int32_t> absent() const;
  /// A pass that reduces begins: announce it; never waits.
  void announce_pass(collective::ProgressQueue& queue);
  /// Announce this rank's next call and get those of the others. Collective, waits.
  const JoinHeader& call_roll(collective::ProgressQueue& queue, Call call, int32_t argument, bool joined);
  /// From now on (-1: no longer) this rank only answers, so the group refuses what it has no part in.
  void set_absent(int32_t joined_rank);
  [[nodiscard]] int32_t absent_rank() const noexcept { return absent_rank_; }
  /// Passes that began to reduce, the same on all ranks.
  [[nodiscard]] int64_t rounds() const noexcept { return rounds_; }

 private:
  // Of Participation::flags: the rank has no batch for the next pass; and behind that a bit for each rank that does not
  // contribute.
  static constexpr uint64_t kLast = 1;
  static constexpr uint64_t kFirstRank = 2;
  static constexpr int32_t kNamedRanks = 63;

  using Bits = std::vector<uint64_t>;
  void gather_absent();

  group::Group& group_;
  const void* const owner_;
  const int32_t positions_;  // ranks, or virtual ranks
  bool announced_ = false;   // this rank has had a bucket to fill in
  Bits own_;                 // by position: of this rank, and does not contribute
  Bits absent_;              // the same of all ranks
  std::unique_ptr<JoinHeader> join_header_;
  pass::Role role_ = pass::Role::kTraining;
  double weight_ = 1;
  bool last_ = false;
  collective::Participation all_ = collective::Participation::none();  // of the last pass that reduced
  int32_t absent_rank_ = -1;
  int64_t rounds_ = 0;
};

}  // namespace ddp::parts
