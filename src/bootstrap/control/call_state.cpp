#include "bootstrap/control/call_state.hpp"

namespace ddp::bootstrap {

// The numbers of joined exchanges are read between two looks at the same wait. They do not change while it lasts, but for
// buckets that other threads of the program complete, which nobody waits for before the wait is over.
std::optional<BlockedCall> CallState::blocked() const noexcept {
  if (inside_.load() != 1) return std::nullopt;
  const uint64_t caller = caller_waits_.load();
  uint64_t where = caller;
  if ((caller & ((uint64_t{1} << kExchangeBits) - 1)) == kForQueue) where = queue_waits_.load();
  if (caller == 0 || where == 0) return std::nullopt;
  BlockedCall blocked;
  blocked.call = call_.load();
  blocked.exchange = static_cast<BlockedCall::Exchange>(where & ((uint64_t{1} << kExchangeBits) - 1));
  blocked.number = where >> kExchangeBits;
  blocked.collectives = collectives_.load();
  blocked.gathers = gathers_.load();
  const bool same =
      caller_waits_.load() == caller && (where == caller || queue_waits_.load() == where) && inside_.load() == 1;
  return same ? std::optional(blocked) : std::nullopt;
}

std::optional<CallWatch::News> CallWatch::look(const CallState& state, int64_t now_ns) noexcept {
  if (now_ns - looked_ns_ < kLookNs) return std::nullopt;
  looked_ns_ = now_ns;
  const std::optional<BlockedCall> now = state.blocked();
  const std::optional<BlockedCall> lasting = now == seen_ ? now : std::nullopt;
  seen_ = now;
  if (lasting == told_) return std::nullopt;
  told_ = lasting;
  return News{lasting};
}

}  // namespace ddp::bootstrap
