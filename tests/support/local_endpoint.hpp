// SPDX-License-Identifier: Apache-2.0
// A rail between the threads of one process, for tests: the same table as the Gloo module, with queues instead of sockets.
// It is strict where Gloo is deadly: a send of more bytes than its receive has room for is counted in size_violations() and
// fails both sides.
#pragma once

#include <cstdint>

#include "socket/socket_abi.h"

namespace ddp::test {

/// Endpoints whose `set` argument is equal text meet each other.
[[nodiscard]] const ddp_socket_table& local_endpoint() noexcept;

/// How many messages met a receive of fewer bytes, in this process so far.
[[nodiscard]] int64_t local_endpoint_size_violations() noexcept;

/// Messages that were posted before their receives, so far: between hosts each would have cost a hop.
[[nodiscard]] int64_t local_endpoint_early_sends() noexcept;

/// From now on each message from one to the other takes so long, in which its bytes move; kDeadLink: it never arrives, and
/// nothing moves. 0: as fast as it can.
inline constexpr int64_t kDeadLink = -1;
void local_endpoint_slow_down(int32_t from, int32_t to, int64_t ms);

/// From now on the member's links seem to lose this number of packets between two looks at them; 0: none.
void local_endpoint_lose(int32_t member, int64_t packets);
/// The most members whose parts or results one member waited for at a time, since the last call.
[[nodiscard]] int64_t local_endpoint_take_most_asked();

/// Messages whose memory was handed over so far; lets a test act in the middle of a transfer.
[[nodiscard]] int64_t local_endpoint_messages() noexcept;

}  // namespace ddp::test
