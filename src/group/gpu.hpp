// SPDX-License-Identifier: Apache-2.0
// This rank's GPU as its group uses it: opened at its first use; and what the group's transports do there. Threads: as
// Group, except is_connected() and stop_on(), which any may call. Tested by gpu_host/group_test.cpp,
// gpu_host/failure_test.cpp and gpu_host/sync_failure_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/tensor.hpp"
#include "ddp/group.h"
#include "exchange/gpu_side.hpp"

namespace ddp::gpu {
class Device;
class OwnGpu;
class Scratch;
class Staging;
}  // namespace ddp::gpu

namespace ddp::group {

class Gpu {
 public:
  /// `own`: this rank's GPU, which outlives recoveries. `side`: of the group's transports. The options live longer.
  Gpu(const ddp_group_options& options, std::shared_ptr<gpu::OwnGpu> own, std::shared_ptr<collective::GpuSide> side);

  /// This rank's. Local. Throws NOT_SUPPORTED, and names the missing part.
  [[nodiscard]] const gpu::Device& device() const;
  /// Device memory that collective calls share, one after the other. Throws as device().
  [[nodiscard]] gpu::Scratch& scratch() const;
  /// Host memory for tensors on the GPU whose bytes go between hosts. Any thread. Throws as device().
  [[nodiscard]] gpu::Staging& staging() const;
  /// Find the memory of the tensor: host memory, which the host must be able to read, or this rank's GPU. `what`
  /// names it in the error. Local. Throws NOT_SUPPORTED, INVALID_ARGUMENT (another GPU, or no GPU memory at all; or memory
  /// of a GPU that is declared to be the host's).
  void bind(Tensor& tensor, const char* what) const;
  /// As gpu::require_host: `instead` is what to do in the error.
  void require_host(const Tensor& tensor, const char* what, const char* instead) const;

  // As GpuSide.
  void connect() const { side_->connect(); }
  [[nodiscard]] bool is_connected() const noexcept { return side_->is_connected(); }
  void settle() const { side_->settle(nullptr); }
  [[nodiscard]] bool free(void* data) const noexcept { return side_->free(data); }

  /// For the kernels that come next on this stream and change what must not be changed once the group is broken: their
  /// `stop` word, or NULL.
  [[nodiscard]] const uint32_t* stop_on(void* stream) const;
  /// The same for a step behind a pass. NULL in a group that can recover: the host has waited for the pass, and the step is
  /// counted, so it is made.
  [[nodiscard]] const uint32_t* stop_step_on(void* stream) const;
  /// As stop_step_on, for one kernel of which one thread reads it, once: it costs no call.
  [[nodiscard]] const uint32_t* stop_step_word() const;
  /// Work that communicates again and again: `body` enqueues it on the stream that it is given, the communication stream,
  /// behind what is on `stream` now; what comes on `stream` then comes after it.
  void in_line(void* stream, const std::function<void(void* communication)>& body) const;

 private:
  const ddp_group_options& options_;
  const std::shared_ptr<gpu::OwnGpu> own_;
  const std::shared_ptr<collective::GpuSide> side_;
};

}  // namespace ddp::group
