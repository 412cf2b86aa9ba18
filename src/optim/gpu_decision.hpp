// SPDX-License-Identifier: Apache-2.0
// How a step takes gradients on a GPU. Their squares are added up there. If the only question is by how much they
// are too long, the device answers that itself and the host waits for nothing; what the norm was comes to the host behind
// it.
//
// Threads: one at a time, and in one order of streams.
// Tested by gpu_host/optimizer_test.cpp.
#pragma once

#include "device/gpu/norms.hpp"

namespace ddp::optim {

class GpuDecision {
 public:
  explicit GpuDecision(const gpu::Device& device)
      : device_(device),
        norms_(device),
        gate_(device, sizeof(ddp_gpu_gate), "the norm of the gradients"),
        copy_(device, sizeof(ddp_gpu_gate), "the norm of the gradients"),
        decided_(device) {}

  /// Note the gradients here, then ask either.
  [[nodiscard]] gpu::Norms& norms() noexcept { return norms_; }
  /// The sum of the squares of what was noted, limited to max_norm; update kernels in the order of the stream read the
  /// answer.
  [[nodiscard]] const ddp_gpu_gate* decide(double loss_scale, double max_norm, void* stream);
  /// What decide found last, once the stream has come so far: the host waits for that.
  [[nodiscard]] double norm() const;

 private:
  const gpu::Device& device_;
  gpu::Norms norms_;
  gpu::Array gate_;
  gpu::Pinned copy_;
  gpu::Event decided_;
};

}  // namespace ddp::optim
