// SPDX-License-Identifier: Apache-2.0
// The transport between processes that share no memory: header rounds and direct exchanges (collectives.hpp) over a
// endpoint (endpoint.hpp): Gloo's.
//
// Promises: sums in the order of the tree with the bits of every other transport; each waiting call ends when the group
// breaks, or when a peer made no progress for options.timeout_ms, and names the rank to blame. Not pollable: a thread of
// ours blocks in finish().
// Cost: a rank sends and receives 2 (n - 1) / n of a large bucket, in the header's hops and two more; half of it for a
// sharded optimizer's gradients, and half for its values.
// Tested by unit/exchange/collectives_test.cpp, unit/exchange/exchange_test.cpp,
// unit/exchange/sharded_exchange_test.cpp and process/gloo_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "exchange/transport.hpp"
#include "socket/module.hpp"
#include "socket/slicing.hpp"
#include "socket/socket_abi.h"

namespace ddp::socket {

/// Collective: opens the module, agrees on addresses over the control plane and connects the ranks. Throws
/// NOT_SUPPORTED (no module), IO (address), TIMED_OUT, PEER_FAILED or the first cause.
[[nodiscard]] std::unique_ptr<collective::Transport> make_socket_transport(const collective::TransportContext& context);

/// The same with a given table and address.
[[nodiscard]] std::unique_ptr<collective::Transport> make_socket_transport(const collective::TransportContext& context,
                                                                           const ddp_socket_table& table,
                                                                           const std::string& address,
                                                                           const SocketOptions& options);

}  // namespace ddp::socket
