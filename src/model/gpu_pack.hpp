// Small tensors of one GPU side by side in the group's scratch memory, so that they travel as one message. Everything is
// enqueued on one stream; the host waits for nothing.
// Floats are moved by kernels that look at the group's `stop` word: they write nothing once it is broken. Other bytes are
// copied.
// Promises: if something fails here on one rank, the group is broken for all, because the others wait for this rank's
// message.
// Tested by gpu_host/sync_test.cpp and gpu_host/sync_failure_test.cpp.
#pragma once

#include <vector>

#include "core/tensor.hpp"
#include "device/gpu/scratch.hpp"
#include "group/group.hpp"

namespace ddp::model {

class GpuPack {
 public:
  /// Room for `parts`, which lie on this rank's GPU and have one dtype.
  GpuPack(group::Group& group, std::vector<Tensor> parts, void* stream);

  void fill();
  /// The pack as one flat tensor: what travels.
  [[nodiscard]] Tensor tensor() const noexcept;
  /// Back to the parts.
  void empty();
  /// Nothing more comes; without it, the destructor does what it can.
  void done();

 private:
  enum class Way { kIn, kOut };
  void move(Way way);

  group::Group& group_;
  const std::vector<Tensor> parts_;
  void* const stream_;
  int64_t bytes_ = 0;
  gpu::Scratch::Use memory_;
};

}  // namespace ddp::model
