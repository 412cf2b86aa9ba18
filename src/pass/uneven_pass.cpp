// What a pass does for ranks with unequal data.
#include "group/consensus.hpp"
#include "pass/pass.hpp"

namespace ddp::pass {

collective::Participation Pass::participation() const noexcept {
  const bool trains = role_ == Role::kTraining || role_ == Role::kAbandoning;
  collective::Participation mine = collective::Participation::of(trains ? weight_ : 0);
  mine.joined = role_ == Role::kJoined ? group_.rank() + 1 : 0;
  mine.flags = last_ ? kLast : 0;
  if (mine.contributors == 0 && group_.rank() < kNamedRanks) mine.flags |= kFirstRank << group_.rank();
  return mine;
}

bool Pass::has_started() noexcept {
  const std::lock_guard lock(starting_);
  return is_open() && mode_ == DDP_PASS_REDUCE && next_ > 0;
}

void Pass::set_weight(double weight) {
  if (has_started())
    throw Error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_set_weight: gradients of this pass are under way; set the weight before the first ddp_model_mark_ready");
  weight_ = weight;
}

void Pass::set_last() {
  if (has_started())
    throw Error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_set_last_pass: gradients of this pass are under way; call it before the first ddp_model_mark_ready");
  last_ = true;
}

bool Pass::abandon(std::string reason, void* stream) {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; there is nothing to abandon");
  if (mode_ != DDP_PASS_REDUCE) {
    role_ = Role::kAbandoning;
    end(stream);
    return true;
  }
  {
    const std::lock_guard lock(starting_);
    role_ = Role::kAbandoning;
    reason_ = std::move(reason);
  }
  const std::optional<Error> failure = try_to<Error>([&] { end(stream); });
  if (!failure) return false;
  group_.check_usable();
  if (!incomplete_) throw Error(*failure);
  return true;  // what the others were told
}

const JoinHeader& Pass::call_roll(Call call, int32_t argument, bool joined) {
  const group::Channel::Open opened(channel_, this, false, queue_);
  group::or_break(group_, group::Part::kExchange, [&] {
    join_header_->start(queue_, call, argument, joined ? group_.rank() + 1 : 0);
    queue_.drain();
  });
  if (!joined) set_absent(join_header_->joined_rank());
  return *join_header_;
}

/// While a rank only answers, what it cannot answer is refused here, before it is sent.
void Pass::set_absent(int32_t joined_rank) {
  if (joined_rank == absent_rank_) return;
  absent_rank_ = joined_rank;
  group_.set_shadowing(this, joined_rank < 0
                                 ? std::string()
                                 : group_.name_of(joined_rank) +
                                       " is out of data (ddp_model_join) and answers only backward passes and "
                                       "ddp_model_sync_buffers of its model; make this call when all ranks have joined");
}

void Pass::fill_report(ddp_pass_report& report) const noexcept {
  report.contributors = all_.contributors;
  report.last = (all_.flags & kLast) != 0 || all_.joined > 0 ? 1 : 0;
  report.weight = all_.weight;
  report.absent = static_cast<int64_t>(all_.flags / kFirstRank);
}

}  // namespace ddp::pass
