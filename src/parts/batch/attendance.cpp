// SPDX-License-Identifier: Apache-2.0
#include "parts/batch/attendance.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "core/bytes.hpp"
#include "group/consensus.hpp"

namespace ddp::parts {

namespace {

constexpr uint64_t bit(int32_t position) noexcept { return uint64_t{1} << (position % 64); }

}  // namespace

Attendance::Attendance(group::Group& group, const void* owner, std::unique_ptr<JoinHeader> header)
    : group_(group),
      owner_(owner),
      positions_(group.options().virtual_ranks > 0 ? group.options().virtual_ranks : group.size()),
      own_(static_cast<size_t>(positions_ + 63) / 64),
      absent_(own_.size()),
      join_header_(std::move(header)) {}

collective::Participation Attendance::mine(int32_t position) noexcept {
  const bool trains = role_ == pass::Role::kTraining;  // whoever abandons the pass has begun to
  collective::Participation mine = collective::Participation::of(trains ? weight_ : 0);
  mine.joined = role_ == pass::Role::kJoined ? group_.rank() + 1 : 0;
  mine.flags = last_ ? kLast : 0;
  if (mine.contributors == 0 && position < kNamedRanks) mine.flags |= kFirstRank << position;
  announced_ = true;
  uint64_t& word = own_[static_cast<size_t>(position) / 64];
  word = mine.contributors == 0 ? word | bit(position) : word & ~bit(position);
  return mine;
}

void Attendance::end(const collective::Participation& all) {
  all_ = all;
  last_ = false;
  std::fill(absent_.begin(), absent_.end(), 0);
  absent_[0] = all.flags / kFirstRank;
  if (positions_ > kNamedRanks && announced_ && all.contributors < positions_) gather_absent();
  if (role_ != pass::Role::kJoined) set_absent(all_.joined - 1);
}

void Attendance::gather_absent() {
  ByteWriter mine;
  for (const uint64_t word : own_) mine.number(word);
  for (const std::string& answer : group_.gather("absent ranks", mine.bytes())) {
    ByteReader theirs(answer);
    for (uint64_t& word : absent_) word |= theirs.number<uint64_t>();
  }
}

std::vector<int32_t> Attendance::absent() const {
  std::vector<int32_t> found;
  for (int32_t position = 0; position < positions_; ++position)
    if ((absent_[static_cast<size_t>(position) / 64] & bit(position)) != 0) found.push_back(position);
  return found;
}

void Attendance::fill_report(ddp_pass_report& report) const noexcept {
  report.contributors = all_.contributors;
  report.last = (all_.flags & kLast) != 0 || all_.joined > 0 ? 1 : 0;
  report.weight = all_.weight;
  for (const uint64_t word : absent_) report.absent_count += std::popcount(word);
}

void Attendance::announce_pass(collective::ProgressQueue& queue) {
  ++rounds_;
  if (join_header_ != nullptr && role_ != pass::Role::kJoined) join_header_->start(queue, Call::kPass, 0, 0);
}

const JoinHeader& Attendance::call_roll(collective::ProgressQueue& queue, Call call, int32_t argument, bool joined) {
  group::or_break(group_, group::Part::kExchange, [&] {
    join_header_->start(queue, call, argument, joined ? group_.rank() + 1 : 0);
    queue.drain();
  });
  if (!joined) set_absent(join_header_->joined_rank());
  return *join_header_;
}

/// While a rank only answers, what it cannot answer is refused here, before it is sent.
void Attendance::set_absent(int32_t joined_rank) {
  if (joined_rank == absent_rank_) return;
  absent_rank_ = joined_rank;
  group_.channels().set_shadowing(
      owner_, joined_rank < 0 ? std::string()
                              : group_.name_of(joined_rank) +
                                    " is out of data (ddp_model_join) and answers only backward passes and "
                                    "ddp_model_sync_buffers of its model; make this call when all ranks have joined");
}

}  // namespace ddp::parts
