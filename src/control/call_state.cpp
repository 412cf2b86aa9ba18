// SPDX-License-Identifier: Apache-2.0
#include "control/call_state.hpp"

#include <utility>

#include "core/attempt.hpp"
#include "trace/watch.hpp"

namespace ddp::bootstrap {

void CallState::set_watch(std::shared_ptr<trace::Watch> watch) noexcept {
  owned_watch_ = std::move(watch);
  watch_.store(owned_watch_.get(), std::memory_order_relaxed);
}

void CallState::tell_watch(UserCall call) const noexcept {
  if (call == UserCall::kNone)
    watch()->leave(this);
  else
    watch()->enter(this, static_cast<int32_t>(call));
}

std::optional<BlockedCall> CallState::blocked() const {
  return inside_.load() == 0 ? blocked_in_message() : blocked_in_exchange();
}

// The numbers of joined exchanges are read between two looks at the same wait. They do not change while it lasts, except by
// buckets that other threads of the program complete, which no rank waits for before the wait is over.
std::optional<BlockedCall> CallState::blocked_in_exchange() const {
  if (inside_.load() != 1) return std::nullopt;
  const uint64_t caller = caller_waits_.load();
  if (caller == 0) return std::nullopt;
  constexpr uint64_t kKinds = (uint64_t{1} << kKindBits) - 1;
  constexpr uint64_t kChannelMask = (uint64_t{1} << kChannelBits) - 1;
  const auto channel = static_cast<size_t>(caller >> kKindBits & kChannelMask);
  const bool for_queue = (caller & kKinds) == kForQueue;
  const uint64_t where = for_queue ? queues_[channel].waits.load() : caller;
  if (where == 0) return std::nullopt;
  BlockedCall blocked;
  blocked.call = call_.load();
  blocked.exchange = static_cast<BlockedCall::Exchange>(where & kKinds);
  blocked.channel = static_cast<int32_t>(where >> kKindBits & kChannelMask);
  blocked.number = where >> (kKindBits + kChannelBits);
  if (const UserCall asked = requested(); blocked.channel == kRequestChannel && asked != UserCall::kNone)
    blocked.call = asked;  // what it waits for says more than that it waits
  add_joined(blocked);
  add_messages(blocked);
  const bool same =
      caller_waits_.load() == caller && (!for_queue || queues_[channel].waits.load() == where) && inside_.load() == 1;
  return same ? std::optional(std::move(blocked)) : std::nullopt;
}

// The message and the streams are those of one moment at which the wait lasts.
std::optional<BlockedCall> CallState::blocked_in_message() const {
  const uint64_t wait = messages.now();
  if (wait == 0) return std::nullopt;
  BlockedCall blocked;
  blocked.call = MessageWaits::call_of(wait);
  blocked.exchange = BlockedCall::Exchange::kMessage;
  blocked.number = wait;
  add_joined(blocked);
  add_messages(blocked);
  const bool same = messages.now() == wait && inside_.load() == 0;
  return same && blocked.settled && blocked.messages.awaited.any ? std::optional(std::move(blocked)) : std::nullopt;
}

void CallState::add_joined(BlockedCall& blocked) const noexcept {
  for (size_t each = 0; each < collectives_.size(); ++each)
    blocked.collectives[each] = queues_[each].works.load(std::memory_order_acquire) ? UINT64_MAX : collectives_[each].load();
  blocked.gathers = gathers_.load();
}

// Posted collectives may exchange messages, so the thread that works on them has to sleep in one that ranks have not joined.
void CallState::add_messages(BlockedCall& blocked) const {
  const bool in_request = blocked.exchange == BlockedCall::Exchange::kCollective && blocked.channel == kRequestChannel;
  const bool works = blocked.collectives[static_cast<size_t>(kRequestChannel)] == UINT64_MAX && !in_request;
  if (works || inside() != 1) return;
  blocked.settled = messages.look(blocked.messages) && inside() == 1;
  if (!blocked.settled) blocked.messages = MessageState();
}

std::optional<CallWatch::News> CallWatch::look(const CallState& state, int64_t now_ns) noexcept {
  if (now_ns - looked_ns_ < kLookNs) return std::nullopt;
  looked_ns_ = now_ns;
  std::optional<BlockedCall> now;
  static_cast<void>(try_to([&] { now = state.blocked(); }));  // without memory for it the rank is not blocked
  const bool lasts = now == seen_;
  seen_ = std::move(now);
  if (!lasts || seen_ == told_) return std::nullopt;
  News news;
  const auto tell = [&] {
    news.blocked = seen_;
    std::optional<BlockedCall> told = seen_;
    told_.swap(told);
  };
  return try_to(tell).has_value() ? std::nullopt : std::optional(std::move(news));
}

}  // namespace ddp::bootstrap
