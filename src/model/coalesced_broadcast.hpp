// SPDX-License-Identifier: Apache-2.0
// Many tensors from one rank to all others, in few messages: small tensors are sent together, large ones directly from and
// into their own memory.
//
// A message has a cost of its own (a round over all ranks) that a tensor of a few hundred bytes does not repay; a copy of a
// small tensor into a staging buffer costs less. So consecutive tensors are packed until a message would pass kPackBytes; a
// tensor above kSmallBytes is a message alone, or several if a limit is given.
// Tensors on a GPU are sent separately: small ones are packed there, and the host does not wait (commit, buffers in every
// step). Promises: the messages depend on the sizes and devices of the tensors, so all ranks agree on them without a
// message. Tested by unit/model/coalesced_broadcast_test.cpp, conformance/state_test.cpp and gpu_host/sync_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.hpp"
#include "group/group.hpp"

namespace ddp::model {

inline constexpr int64_t kSmallBytes = int64_t{32} << 10;
inline constexpr int64_t kPackBytes = int64_t{256} << 10;

/// A part of a tensor's memory.
struct CoalescedPart {
  size_t tensor = 0;  // position in the list
  int64_t offset = 0;
  int64_t bytes = 0;
};

using Message = std::vector<CoalescedPart>;

/// Each byte of each tensor once, in order. No span has more than `limit` bytes; a message is in host memory or on a GPU,
/// not both.
[[nodiscard]] std::vector<Message> plan_messages(const std::vector<Tensor>& tensors, int64_t limit);

/// Sends messages of one plan; keeps the staging buffer. `stream`: in whose order tensors on a GPU are read and written.
class CoalescedBroadcast {
 public:
  CoalescedBroadcast(group::Group& group, int32_t root, void* stream) noexcept
      : group_(group), root_(root), stream_(stream) {}
  /// Collective.
  void send(const std::vector<Tensor>& tensors, const Message& message);

 private:
  group::Group& group_;
  int32_t root_;
  void* stream_;
  std::vector<std::byte> staging_;  // in host memory
};

/// All of it. Collective.
void broadcast_coalesced(group::Group& group, const std::vector<Tensor>& tensors, int32_t root, void* stream = nullptr);

}  // namespace ddp::model
