// SPDX-License-Identifier: Apache-2.0
// How messages lie on a stream between two ranks: frames, some of them with the bytes of a message behind.
//
//   message   a small message, with its bytes
//   offer     a large one: its bytes come when the receiver asks for them
//   take      the receiver asks for what was offered
//   refuse    the receiver expects another size or type
//   data      the bytes of what was taken
//   credit    small messages have been received: so many bytes more may be sent without being asked for
//
// Plain bytes; both ends are processes of one version of the library (limits::kProtocol).
// Tested by unit/exchange/messenger_test.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.hpp"
#include "ddp/types.h"

namespace ddp::messages {

/// Messages of the program, of blocking collective calls and of posted ones are not taken for each other.
enum class Space : uint16_t { kProgram = 1, kCollective, kRequest };

/// What a receive is compared by, beside the sender.
struct Key {
  Space space = Space::kProgram;
  int64_t tag = 0;
  [[nodiscard]] bool operator==(const Key&) const noexcept = default;
};

struct Content {
  ddp_dtype dtype = DDP_U8;
  int64_t count = 0;  // elements
  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }
  [[nodiscard]] bool operator==(const Content&) const noexcept = default;
  /// "12 F32 elements"
  [[nodiscard]] std::string describe() const { return std::to_string(count) + " " + dtype_name(dtype) + " elements"; }
};

struct Frame {
  enum class Kind : uint16_t { kMessage = 1, kOffer, kTake, kRefuse, kData, kCredit };
  Kind kind = Kind::kMessage;
  Space space = Space::kProgram;
  ddp_dtype dtype = DDP_U8;
  int64_t tag = 0;
  int64_t count = 0;   // elements; of a credit: bytes
  uint64_t offer = 0;  // number of the offer, on this stream

  [[nodiscard]] Key key() const noexcept { return {space, tag}; }
  [[nodiscard]] Content content() const noexcept { return {dtype, count}; }
};
static_assert(sizeof(Frame) == 32);

/// Bytes of the largest message that is sent without being asked for.
inline constexpr int64_t kEagerBytes = int64_t{64} << 10;
/// Bytes, with frames, that one rank sends to one other without being asked for, until it hears that some were received.
/// Beyond, small messages are offered too, and their sender waits.
inline constexpr int64_t kWindowBytes = int64_t{1} << 20;
/// What a small message counts for.
[[nodiscard]] constexpr int64_t window_cost(int64_t bytes) noexcept { return bytes + static_cast<int64_t>(sizeof(Frame)); }

}  // namespace ddp::messages
