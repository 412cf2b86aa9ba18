// SPDX-License-Identifier: Apache-2.0
// Seam 2 for several hosts with several ranks each: shared memory inside a host, one rail per local rank between hosts.
//
// Promises: sums in the order of the tree with the bits of every other transport; a mismatch or a failure anywhere is
// everybody's first cause. Not pollable: a thread of ours blocks in finish().
// Cost: README.md of this folder. Threads: as Transport.
// Tested by process/hierarchy_test.cpp and process/hierarchy_netns_test.sh.
#pragma once

#include <memory>
#include <string>

#include "collective/hierarchy/host.hpp"

namespace ddp::hierarchy {

/// Collective; `memory` is what connect_host gave. Opens the Gloo module. Throws as make_socket_transport does.
[[nodiscard]] std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context,
                                                                    const Layout& layout, HostMemory memory);

/// The same with a given table and address, for tests and other carriers.
[[nodiscard]] std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context,
                                                                    const Layout& layout, HostMemory memory,
                                                                    const ddp_socket_table& table,
                                                                    const std::string& address,
                                                                    const socket::SocketOptions& options);

}  // namespace ddp::hierarchy
