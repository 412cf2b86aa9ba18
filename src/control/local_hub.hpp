// SPDX-License-Identifier: Apache-2.0
// The control plane of ranks that are threads of one process (rendezvous local://name): a table under one lock.
//
// The first rank that names a hub makes it; it is found in a registry of this process until all ranks came, so that the name
// can be used again at once. Failures are propagated as over TCP, with the same texts; a hub thread calls the failure
// callbacks, so that abort() never runs another rank's code. There are no heartbeats: a thread cannot vanish without its
// process. Cost: a gather is one lock and one wake-up per rank. Threads: as for Control. Tested by
// unit/control/local_hub_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "control/control.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// Wait until all `size` ranks have joined the hub of this name. Throws INVALID_ARGUMENT (rank taken or out of range),
/// MISMATCH (another size) and TIMED_OUT (names the missing ranks). `limit_ms` is the text of the deadline. `world_rank`: as
/// in Member. `check` is called several times a second while this waits; what it throws ends it.
[[nodiscard]] std::unique_ptr<Control> join_local_hub(const std::string& name, int32_t rank, int32_t size,
                                                      os::Deadline deadline, int64_t limit_ms, int32_t world_rank = -1,
                                                      const std::function<void()>& check = {});

}  // namespace ddp::bootstrap
