// SPDX-License-Identifier: Apache-2.0
// Traces of a group: started and stopped by all ranks together, or by the launcher for the whole life of the group
// (DDP_TRACE), and written by rank 0. Also the live numbers that a launcher wants (DDP_WATCH_DIR).
// Threads: as Group.
// Tested by process/trace_test.cpp and process/ddprun_trace_test.sh.
#pragma once

#include <cstdint>
#include <string>

#include "group/group.hpp"

namespace ddp::group {

struct TraceSettings {
  int64_t events = 0;  // that a rank keeps
};

/// The group has been made, its n-th generation: applies the launcher's variables. Not called for sub-groups. Local: errors
/// are logged. `name`: of the group, "" if it has none.
void follow_launcher(Group& group, int64_t generation, const std::string& name);
/// A launcher reads the rank's number, the size and the transports of this generation. Only for a group with a watch.
void tell_place(Group& group, int64_t generation);

/// Collective. `path` is rank 0's, and "" elsewhere if need be. INVALID_STATE if a trace is on; IO.
void start_trace(Group& group, const std::string& path, const TraceSettings& settings);
/// Collective. The file is there when it returns. INVALID_STATE if no rank has a trace; IO.
void stop_trace(Group& group);

}  // namespace ddp::group
