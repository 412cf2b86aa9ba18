// The transport between processes that share no memory: a chain (chain.hpp) over a rail (rail.hpp), usually Gloo's.
//
// Promises: sums in rank order with the bits of every other transport; each waiting call ends when the group breaks, or when one
// neighbour made no progress for options.timeout_ms, and names who is to blame. Not pollable: a thread of ours blocks in finish().
// Cost: each link carries a bucket once up and once down, 16-bit floats as F32 on the way up from the second rank on; between few ranks each
// rank sends and receives 2 (n - 1) / n of a large bucket, in two hops (exchange.hpp).
// Tested by unit/comm/chain_test.cpp, unit/comm/exchange_test.cpp and process/gloo_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "comm/rail/chain.hpp"
#include "comm/rail/rail_abi.h"
#include "comm/transport.hpp"

namespace ddp {

/// Collective: opens the Gloo module, agrees on addresses over the control plane and connects the neighbours. Throws NOT_SUPPORTED
/// (no module), IO (address), TIMED_OUT, PEER_FAILED or the first cause.
[[nodiscard]] std::unique_ptr<Transport> make_rail_transport(const TransportContext& context);

/// The same with a given table and address, for tests and other carriers.
[[nodiscard]] std::unique_ptr<Transport> make_rail_transport(const TransportContext& context, const ddp_rail_table& table,
                                                             const std::string& address, const ChainOptions& options);

}  // namespace ddp
