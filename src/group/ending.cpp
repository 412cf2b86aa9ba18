// SPDX-License-Identifier: Apache-2.0
#include "group/ending.hpp"

#include <mutex>
#include <optional>

#include "bootstrap/failure.hpp"
#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/group_impl.hpp"
#include "group/requests.hpp"
#include "group/value_lane.hpp"
#include "os/log.hpp"

namespace ddp::group {

void Ending::begin_with(Group& group, void (*action)(Group&) noexcept) noexcept { group.at_end_ = action; }

void Ending::exit(Group& group) noexcept {
  const std::unique_lock stays(group.replacing_, std::try_to_lock);
  if (!stays) return;
  Group::Impl& impl = *group.impl_;
  const std::unique_lock lock(impl.closing, std::try_to_lock);
  if (!lock || !impl.health.begin_exit()) return;
  const bool is_inside = group.calls().inside() != 0 || impl.channels.any_open() || !impl.channels.requests().is_idle() ||
                         !impl.channels.values().await_idle();
  const bool in_order = !is_inside && !impl.health.has_fault();
  if (in_order && group.at_end_ != nullptr) group.at_end_(group);
  impl.gpu.side->close(in_order, collective::GpuSide::Leaves::kProcess);
  if (impl.origin.threads) return;  // its ranks end together
  if (in_order) impl.channels.shutdown();
  impl.health.exit(is_inside ? bootstrap::Leaving::kProcessInside : bootstrap::Leaving::kProcess);
}

void Ending::fence_memory(Group& group) {
  const std::unique_lock stays(group.replacing_, std::try_to_lock);
  if (!stays) return;  // it recovers, and has moved it
  if (group.impl_->origin.threads || !has_broken(group.impl_->failure)) return;
  for (const auto& arena : group.impl_->arenas) arena->fence();
}

void Ending::fence(collective::Arena& arena) noexcept {
  if (const std::optional<Error> failed = try_to([&] { arena.fence(); }))
    os::log_of(*failed, DDP_LOG_ERROR,
               "memory of a broken group that is still used could not be moved out of the reach of its ranks: %s",
               failed->what());
}

bool Ending::has_broken(const bootstrap::Failure& failure) noexcept {
  bool broken = false;
  static_cast<void>(try_to([&] {
    const std::optional<Error> cause = failure.cause();
    broken = cause.has_value() && cause->status() != DDP_ERROR_INVALID_STATE;
  }));
  return broken;
}

}  // namespace ddp::group
