// SPDX-License-Identifier: Apache-2.0
// What a group's GPU does when, for the trace that is on (device/gpu/timeline). Nothing if none is on, or if the group has
// no GPU yet. Threads: as Group, but for collect_gpu_times(), which any may call. Tested by gpu_host/trace_test.cpp.
#pragma once

namespace ddp::group {

class Group;

/// What it does from here on is in the trace. Local; a problem is said in the log.
void time_gpu(Group& group) noexcept;
/// What is done is recorded. Waits for nothing.
void collect_gpu_times(const Group& group) noexcept;
/// All that it has done so far is. Waits for it, a second at most.
void settle_gpu_times(const Group& group) noexcept;

}  // namespace ddp::group
