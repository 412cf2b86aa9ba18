// SPDX-License-Identifier: Apache-2.0
#include "parts/batch/attendance.hpp"

#include "group/consensus.hpp"

namespace ddp::parts {

collective::Participation Attendance::mine(int32_t position) const noexcept {
  const bool trains = role_ == pass::Role::kTraining;  // whoever abandons the pass has begun to
  collective::Participation mine = collective::Participation::of(trains ? weight_ : 0);
  mine.joined = role_ == pass::Role::kJoined ? group_.rank() + 1 : 0;
  mine.flags = last_ ? kLast : 0;
  if (mine.contributors == 0 && position < kNamedRanks) mine.flags |= kFirstRank << position;
  return mine;
}

void Attendance::end(const collective::Participation& all) {
  all_ = all;
  last_ = false;
  if (role_ != pass::Role::kJoined) set_absent(all_.joined - 1);
}

void Attendance::fill_report(ddp_pass_report& report) const noexcept {
  report.contributors = all_.contributors;
  report.last = (all_.flags & kLast) != 0 || all_.joined > 0 ? 1 : 0;
  report.weight = all_.weight;
  report.absent = static_cast<int64_t>(all_.flags / kFirstRank);
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
