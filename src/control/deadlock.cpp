// SPDX-License-Identifier: Apache-2.0
#include "control/deadlock.hpp"

#include <algorithm>
#include <string>

#include "control/texts.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {
namespace {

bool has_joined(const BlockedCall& rank, const BlockedCall& waiting) noexcept {
  return rank.joined_where(waiting) >= waiting.number;
}

/// Takes away every rank for which all that are left have joined what it waits in. True if there was one.
bool take_away_free(std::vector<const BlockedCall*>& left) {
  BlockedCall least;
  least.gathers = UINT64_MAX;
  least.collectives.fill(UINT64_MAX);
  for (const BlockedCall* const rank : left) {
    least.gathers = std::min(least.gathers, rank->gathers);
    for (size_t channel = 0; channel < least.collectives.size(); ++channel)
      least.collectives[channel] = std::min(least.collectives[channel], rank->collectives[channel]);
  }
  return std::erase_if(left, [&](const BlockedCall* rank) { return has_joined(least, *rank); }) > 0;
}

}  // namespace

std::optional<Deadlock> find_deadlock(const std::vector<std::optional<BlockedCall>>& ranks) {
  std::vector<const BlockedCall*> stuck;
  for (const auto& rank : ranks) {
    if (!rank.has_value()) return std::nullopt;
    stuck.push_back(&*rank);
  }
  while (take_away_free(stuck)) {
  }
  const auto number_of = [&](const BlockedCall* rank) {
    const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const auto& each) { return &*each == rank; });
    return static_cast<int32_t>(found - ranks.begin());
  };
  std::optional<Deadlock> found;
  for (const BlockedCall* const waiting : stuck) {
    for (const BlockedCall* const absent : stuck) {
      if (has_joined(*absent, *waiting)) continue;
      const bool differ = absent->call != waiting->call;
      if (!found || differ) found = Deadlock{number_of(waiting), number_of(absent)};
      if (differ) return found;
    }
  }
  return found;
}

DeadlockWatch::DeadlockWatch(const std::vector<Member>& members) : members_(&members), ranks_(members.size()) {}

void DeadlockWatch::report(int32_t rank, const std::optional<BlockedCall>& blocked) noexcept {
  std::optional<BlockedCall>& known = ranks_[static_cast<size_t>(rank)];
  blocked_ += blocked.has_value() ? 1 : 0;
  blocked_ -= known.has_value() ? 1 : 0;
  known = blocked;
}

std::optional<Error> DeadlockWatch::verdict() const noexcept {
  if (blocked_ < ranks_.size()) return std::nullopt;
  std::optional<Error> said;
  const auto judge = [&] {
    if (const std::optional<Deadlock> found = find_deadlock(ranks_)) said = error_of(*found);
  };
  static_cast<void>(try_to(judge));  // without memory the owner asks again soon
  return said;
}

std::optional<texts::Waiting> DeadlockWatch::first_waiting(int32_t but) const noexcept {
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank)
    if (const auto& at = ranks_[static_cast<size_t>(rank)]; rank != but && at.has_value())
      return texts::Waiting{&(*members_)[static_cast<size_t>(rank)], at->call};
  return std::nullopt;
}

Error DeadlockWatch::error_of(const Deadlock& found) const {
  const auto call_of = [&](int32_t rank, int32_t other) {
    const BlockedCall& at = *ranks_[static_cast<size_t>(rank)];
    std::string name = name_of(at.call);
    if (at.call != ranks_[static_cast<size_t>(other)]->call) return name;
    const bool gather = at.exchange == BlockedCall::Exchange::kGather;
    const std::string channel = at.channel == 0 ? "" : " of channel " + std::to_string(at.channel);
    return name + (gather ? " (exchange " : " (collective ") + std::to_string(at.number) + (gather ? "" : channel) + ")";
  };
  const auto [a, b] = std::minmax(found.waiting, found.absent);
  const auto member = [this](int32_t rank) -> const Member& { return (*members_)[static_cast<size_t>(rank)]; };
  const auto at = [&](int32_t rank, int32_t other) {
    return texts::At{ranks_[static_cast<size_t>(rank)]->call, call_of(rank, other)};
  };
  return texts::different_calls(member(a), at(a, b), member(b), at(b, a));
}

}  // namespace ddp::bootstrap
