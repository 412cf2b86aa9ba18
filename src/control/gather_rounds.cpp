// SPDX-License-Identifier: Apache-2.0
#include "control/gather_rounds.hpp"

#include <algorithm>
#include <utility>

#include "control/limits.hpp"
#include "control/texts.hpp"

namespace ddp::bootstrap {

GatherRounds::GatherRounds(const std::vector<Member>& members) : members_(&members), next_(members.size(), 1) {}

// Set round.error if this contribution does not fit.
void GatherRounds::judge(Round& round, int32_t rank, std::string_view what, UserCall call) {
  if (round.error.has_value()) return;
  if (round.what != what) {
    const auto member = [this](int32_t r) -> const Member& { return (*members_)[static_cast<size_t>(r)]; };
    const bool differ = round.call != call;  // then their names say enough
    const texts::At first{
        round.call, describe_call(round.call, differ && round.call != UserCall::kNone ? "" : std::string_view(round.what))};
    const texts::At other{call, describe_call(call, differ && call != UserCall::kNone ? "" : what)};
    round.error = round.first < rank ? texts::different_calls(member(round.first), first, member(rank), other)
                                     : texts::different_calls(member(rank), other, member(round.first), first);
  } else if (round.bytes > limits::kGatherBytes) {
    round.error = texts::gather_too_large(what, round.bytes);
  }
}

GatherRounds::Answer GatherRounds::add(int32_t rank, std::string_view what, std::string blob, int64_t deadline_ns,
                                       int64_t limit_ms, UserCall call) {
  Answer answer;
  answer.sequence = next_[static_cast<size_t>(rank)]++;
  Round& round = rounds_[answer.sequence];
  if (round.arrived == 0) {
    round.what = what;
    round.call = call;
    round.first = rank;
    round.blobs.resize(members_->size());
  }
  ++round.arrived;
  round.bytes += blob.size();
  if (deadline_ns < round.deadline_ns) {
    round.deadline_ns = deadline_ns;
    round.limit_ms = limit_ms;
  }
  const bool failed_before = round.error.has_value();
  judge(round, rank, what, call);
  round.blobs[static_cast<size_t>(rank)] = round.error.has_value() ? std::string() : std::move(blob);

  const bool all_here = round.arrived == static_cast<int32_t>(members_->size());
  if (round.error.has_value()) {
    answer.error = round.error;
    for (int32_t r = 0; r < static_cast<int32_t>(members_->size()); ++r) {
      auto& held = round.blobs[static_cast<size_t>(r)];
      if (failed_before ? r == rank : held.has_value()) answer.to.push_back(r);
      if (held.has_value()) held->clear();
    }
  } else if (all_here) {
    for (int32_t r = 0; r < static_cast<int32_t>(members_->size()); ++r) {
      answer.to.push_back(r);
      answer.blobs.push_back(std::move(*round.blobs[static_cast<size_t>(r)]));
    }
  }
  if (all_here) rounds_.erase(answer.sequence);
  return answer;
}

std::optional<GatherRounds::Overdue> GatherRounds::overdue(int64_t now_ns) const {
  for (const auto& [sequence, round] : rounds_) {
    if (round.error.has_value() || round.deadline_ns > now_ns) continue;
    Overdue found{describe_call(round.call, round.what), round.limit_ms, {}};
    for (size_t r = 0; r < round.blobs.size(); ++r)
      if (!round.blobs[r].has_value()) found.missing.push_back(static_cast<int32_t>(r));
    return found;
  }
  return std::nullopt;
}

}  // namespace ddp::bootstrap
