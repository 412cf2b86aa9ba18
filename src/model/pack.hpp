// SPDX-License-Identifier: Apache-2.0
// Copies small tensors of one device into contiguous memory, so that they are sent as one message: in a buffer in host
// memory, or in the group's scratch memory on a GPU. There everything is enqueued on one stream; the host does not wait.
// A GPU writes nothing back once the group's `stop` word is set; so what NCCL leaves behind when a rank is lost
// reaches no parameter. Promises: if something fails here on one rank, the group is broken for all, because the others wait
// for this rank's message. Tested by unit/model/coalesced_broadcast_test.cpp, gpu_host/sync_test.cpp and
// gpu_host/sync_failure_test.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/tensor.hpp"
#include "device/device.hpp"
#include "device/gpu/scratch.hpp"
#include "group/group.hpp"

namespace ddp::model {

class Pack {
 public:
  /// Room for `parts`, which are on one device and have one dtype; in host memory it is in `buffer`, which may grow.
  Pack(group::Group& group, const std::vector<Tensor>& parts, std::vector<std::byte>& buffer, void* stream);

  void fill() { move(Way::kIn); }
  /// The pack as one flat tensor: the message.
  [[nodiscard]] Tensor tensor() const noexcept;
  /// Back to the parts.
  void empty() { move(Way::kOut); }
  /// Nothing more comes; without it, the destructor does what it can.
  void done();

 private:
  enum class Way { kIn, kOut };
  void move(Way way);

  group::Group& group_;
  const std::vector<Tensor>& parts_;
  void* const stream_;
  const device::Device& home_;
  int64_t bytes_ = 0;
  std::optional<gpu::Scratch::Use> scratch_;  // on a GPU
  std::byte* data_ = nullptr;
};

}  // namespace ddp::model
