// SPDX-License-Identifier: Apache-2.0
// Seam 2 over shared memory: for ranks of one host, processes or threads.
// Cost: an all-reduce of S bytes in place reads S and writes S per rank, and two waits; staged, it costs about one copy in
// and one out in addition; up to kInlineBytes are sent inside the announcement, with one wait. Tested by conformance/.
#pragma once

#include <memory>

#include "exchange/transport.hpp"

namespace ddp::shm {

/// Collective. Throws the reason why the ranks cannot share memory (the same on all ranks).
[[nodiscard]] std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context,
                                                                    bool threads, os::Deadline deadline);

}  // namespace ddp::shm
