// SPDX-License-Identifier: Apache-2.0
#include "group/gpu_times.hpp"

#include <optional>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "device/gpu/device.hpp"
#include "group/gpu.hpp"
#include "group/group.hpp"
#include "os/log.hpp"
#include "trace/watch.hpp"

namespace ddp::group {
namespace {

gpu::Timeline* timeline_of(const Group& group) noexcept {
  return group.gpu().is_connected() ? &group.gpu().device().timeline() : nullptr;
}

}  // namespace

void time_gpu(Group& group) noexcept {
  gpu::Timeline* const timeline = timeline_of(group);
  const trace::Watch* const watch = group.calls().watch();
  if (timeline == nullptr || timeline->is_on() || watch == nullptr || !watch->is_on()) return;
  if (!timeline->tries(watch->traces())) return;
  const std::optional<Error> failed = try_to([&] { timeline->start(group.calls().shared_watch()); });
  if (failed) os::log_of(*failed, DDP_LOG_WARNING, "what the GPU does is not in the trace: %s", failed->what());
}

void collect_gpu_times(const Group& group) noexcept {
  if (gpu::Timeline* const timeline = timeline_of(group)) timeline->collect();
}

void settle_gpu_times(const Group& group) noexcept {
  if (gpu::Timeline* const timeline = timeline_of(group)) timeline->settle();
}

}  // namespace ddp::group
