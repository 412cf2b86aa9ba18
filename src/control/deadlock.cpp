// SPDX-License-Identifier: Apache-2.0
#include "control/deadlock.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "control/texts.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {
namespace {

using Reports = std::vector<std::optional<BlockedCall>>;

bool waits_for_message(const std::optional<BlockedCall>& rank) noexcept {
  return rank.has_value() && rank->exchange == BlockedCall::Exchange::kMessage;
}

bool has_joined(const BlockedCall& rank, const BlockedCall& waiting) noexcept {
  return rank.joined_where(waiting) >= waiting.number;
}

StreamMark stream_to(const BlockedCall& rank, int32_t peer) noexcept {
  for (const StreamMark& each : rank.messages.streams)
    if (each.peer == peer) return each;
  return {peer};
}

/// The ranks that are left while others are taken away.
class Stuck {
 public:
  explicit Stuck(const Reports& ranks) : ranks_(ranks), in_(ranks.size()), size_(static_cast<int32_t>(ranks.size())) {
    for (int32_t rank = 0; rank < size_; ++rank)
      if (ranks[static_cast<size_t>(rank)].has_value()) in_[static_cast<size_t>(rank)] = 1;
    while (take_away_free()) {
    }
  }

  [[nodiscard]] bool has(int32_t rank) const noexcept {
    return rank >= 0 && rank < size_ && in_[static_cast<size_t>(rank)] != 0;
  }
  [[nodiscard]] const BlockedCall& at(int32_t rank) const noexcept { return *ranks_[static_cast<size_t>(rank)]; }
  /// Does one that is left wait for the other one?
  [[nodiscard]] bool waits_for(int32_t rank, int32_t other) const noexcept {
    if (!has(other)) return false;
    const BlockedCall& waiting = at(rank);
    if (!waits_for_message(waiting)) return !has_joined(at(other), waiting);
    const int32_t awaited = waiting.messages.awaited.peer;
    return rank != other && (awaited == other || awaited == kAnyRank);
  }
  /// -1: nobody.
  [[nodiscard]] int32_t first_awaited(int32_t rank) const noexcept {
    for (int32_t other = 0; other < size_; ++other)
      if (other != rank && waits_for(rank, other)) return other;
    return -1;
  }
  /// From a rank that waits for a message on to ranks that wait in a ring, the lowest first; empty if none does.
  [[nodiscard]] std::vector<int32_t> chain() const {
    std::vector<int32_t> chain;
    for (int32_t rank = 0; rank < size_ && chain.empty(); ++rank)
      if (has(rank) && waits_for_message(at(rank))) chain.push_back(rank);
    while (!chain.empty()) {
      const int32_t next = first_awaited(chain.back());
      if (next < 0) return {};
      const auto before = std::find(chain.begin(), chain.end(), next);
      if (before == chain.end()) {
        chain.push_back(next);
        continue;
      }
      chain.erase(chain.begin(), before);
      std::rotate(chain.begin(), std::min_element(chain.begin(), chain.end()), chain.end());
      break;
    }
    return chain;
  }

 private:
  /// True if there was one.
  bool take_away_free() {
    BlockedCall least;  // of what all that are left have joined
    least.gathers = UINT64_MAX;
    least.collectives.fill(UINT64_MAX);
    for (int32_t rank = 0; rank < size_; ++rank) {
      if (!has(rank)) continue;
      least.gathers = std::min(least.gathers, at(rank).gathers);
      for (size_t channel = 0; channel < least.collectives.size(); ++channel)
        least.collectives[channel] = std::min(least.collectives[channel], at(rank).collectives[channel]);
    }
    bool found = false;
    for (int32_t rank = 0; rank < size_; ++rank) {
      if (!has(rank)) continue;
      const bool is_free = waits_for_message(at(rank)) ? !is_message_out_of_reach(rank) : has_joined(least, at(rank));
      if (!is_free) continue;
      in_[static_cast<size_t>(rank)] = 0;
      found = true;
    }
    return found;
  }
  [[nodiscard]] bool is_message_out_of_reach(int32_t rank) const noexcept {
    const int32_t awaited = at(rank).messages.awaited.peer;
    if (awaited != kAnyRank) return awaited != rank && has(awaited) && is_quiet(rank, awaited);
    for (int32_t other = 0; other < size_; ++other)
      if (other != rank && !(has(other) && is_quiet(rank, other))) return false;
    return true;
  }
  /// Can nothing come from the other one, as long as both wait?
  [[nodiscard]] bool is_quiet(int32_t rank, int32_t other) const noexcept {
    const StreamMark here = stream_to(at(rank), other), there = stream_to(at(other), rank);
    return at(rank).settled && at(other).settled && !here.has_output && !there.has_output && there.written == here.read &&
           (here.written == there.read || !at(other).messages.reads);
  }

  const Reports& ranks_;
  std::vector<char> in_;
  const int32_t size_;
};

}  // namespace

std::optional<Deadlock> find_deadlock(const Reports& ranks) {
  const bool all = std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.has_value(); });
  if (!all && std::none_of(ranks.begin(), ranks.end(), waits_for_message)) return std::nullopt;
  const Stuck stuck(ranks);
  std::optional<Deadlock> found;
  const auto size = static_cast<int32_t>(ranks.size());
  for (int32_t waiting = 0; waiting < size; ++waiting) {
    for (int32_t absent = 0; absent < size && stuck.has(waiting); ++absent) {
      if (!stuck.waits_for(waiting, absent)) continue;
      const bool differ = stuck.at(absent).call != stuck.at(waiting).call;
      if (!found || differ) found = Deadlock{waiting, absent, stuck.chain()};
      if (differ) return found;
    }
  }
  return found;
}

DeadlockWatch::DeadlockWatch(const std::vector<Member>& members) : members_(&members), ranks_(members.size()) {}

void DeadlockWatch::report(int32_t rank, std::optional<BlockedCall> blocked) noexcept {
  std::optional<BlockedCall>& known = ranks_[static_cast<size_t>(rank)];
  blocked_ += blocked.has_value() ? 1 : 0;
  blocked_ -= known.has_value() ? 1 : 0;
  for_messages_ += waits_for_message(blocked) ? 1 : 0;
  for_messages_ -= waits_for_message(known) ? 1 : 0;
  known = std::move(blocked);
}

std::optional<Error> DeadlockWatch::verdict() const noexcept {
  if (blocked_ < ranks_.size() && for_messages_ == 0) return std::nullopt;
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

Error DeadlockWatch::error_of_chain(const std::vector<int32_t>& chain) const {
  std::vector<texts::At> calls;
  std::vector<const Member*> members;
  for (size_t at = 0; at < chain.size(); ++at) {
    const BlockedCall& blocked = *ranks_[static_cast<size_t>(chain[at])];
    const MessageState::Awaited& awaited = blocked.messages.awaited;
    const std::string next = "rank " + std::to_string(chain[(at + 1) % chain.size()]);
    const std::string tag = " with tag " + std::to_string(awaited.tag);
    std::string words = name_of(blocked.call);
    if (!waits_for_message(blocked))
      words += " for " + next;
    else if (awaited.sends)
      words += " until " + next + " receives what it sends" + tag;
    else
      words += " for a message of " + (awaited.peer == kAnyRank ? "any rank" : next) + tag;
    calls.push_back({blocked.call, std::move(words)});
    members.push_back(&(*members_)[static_cast<size_t>(chain[at])]);
  }
  return texts::wait_for_each_other(members, calls);
}

Error DeadlockWatch::error_of(const Deadlock& found) const {
  if (!found.chain.empty()) return error_of_chain(found.chain);
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
