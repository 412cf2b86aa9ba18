// SPDX-License-Identifier: Apache-2.0
// The times of a group's work on its GPU, for the current trace (device/gpu/timeline). Does nothing if no trace is on, or if
// the group has no GPU yet. Threads: as Group, except collect_gpu_times(), which any may call. Tested by
// gpu_host/trace_test.cpp.
#pragma once

namespace ddp::group {

class Group;

/// Its later work is in the trace. Local; a problem is logged.
void time_gpu(Group& group) noexcept;
/// What is done is recorded. Waits for nothing.
void collect_gpu_times(const Group& group) noexcept;
/// All that it has done so far is. Waits for it, a second at most.
void settle_gpu_times(const Group& group) noexcept;

}  // namespace ddp::group
