// SPDX-License-Identifier: Apache-2.0
// Seam 2 for several hosts with several ranks each: shared memory inside a host, one rail per local rank between hosts.
//
// Promises: sums in the order of the tree with the bits of every other transport; a mismatch or a failure on any rank is the
// first cause on all. Not pollable: a thread of ours blocks in finish(). Cost: README.md of this folder. Threads: as
// Transport. Tested by process/hierarchy_test.cpp and process/hierarchy_netns_test.sh.
#pragma once

#include <memory>

#include "hosts/host.hpp"
#include "socket/module.hpp"

namespace ddp::hierarchy {

/// Opens the module. Throws NOT_SUPPORTED (no module), IO (address).
[[nodiscard]] Carrier open_carrier(const collective::TransportContext& context);

/// Collective; `memory` is what connect_host gave. Throws as make_socket_transport does.
[[nodiscard]] std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context,
                                                                    const Layout& layout, const Carrier& carrier,
                                                                    HostMemory memory);

}  // namespace ddp::hierarchy
