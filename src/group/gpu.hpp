// SPDX-License-Identifier: Apache-2.0
// The GPUs of a group: this rank's own, and NCCL between those of all ranks. Each is opened at its first use. Threads: as
// Group, except existing_nccl(), stop_on() and stop_word(), which any may call. Tested by gpu_host/group_test.cpp,
// gpu_host/failure_test.cpp and gpu_host/sync_failure_test.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/tensor.hpp"
#include "ddp/group.h"

namespace ddp::bootstrap {
class Control;
class Failure;
}  // namespace ddp::bootstrap
namespace ddp::gpu {
class Device;
class Event;
class Scratch;
}  // namespace ddp::gpu
namespace ddp::nccl {
class NcclTransport;
class OwnGpu;
}  // namespace ddp::nccl

namespace ddp::group {

class Health;

class Gpu {
 public:
  /// `own`: this rank's GPU, which outlives recoveries. Arguments passed by reference live longer.
  Gpu(bootstrap::Control& control, bootstrap::Failure& failure, Health& health, const ddp_group_options& options,
      std::shared_ptr<nccl::OwnGpu> own);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// This rank's. Local. Throws NOT_SUPPORTED, and names the missing part.
  [[nodiscard]] const gpu::Device& device();
  /// Device memory that collective calls share, one after the other. Throws as device().
  [[nodiscard]] gpu::Scratch& scratch();
  /// Find the memory of the tensor: host memory, which the host must be able to read, or this rank's GPU. `what`
  /// names it in the error. Local. Throws NOT_SUPPORTED, INVALID_ARGUMENT (another GPU, or no GPU memory at all; or memory
  /// of a GPU that is declared to be the host's).
  void bind(Tensor& tensor, const char* what);
  /// As gpu::require_host: `instead` is what to do in the error.
  void require_host(const Tensor& tensor, const char* what, const char* instead);

  /// What communicates on GPUs. Collective the first time, if there are other ranks. Throws NOT_SUPPORTED on all of them.
  [[nodiscard]] nccl::NcclTransport& nccl();
  /// NULL before the first use.
  [[nodiscard]] nccl::NcclTransport* existing_nccl() const noexcept { return published_.load(); }
  /// For the kernels that come next on this stream and change what must not be changed once the group is broken: their
  /// `stop` word, or NULL.
  [[nodiscard]] const uint32_t* stop_on(void* stream) const;
  /// The same for a step behind a pass. NULL in a group that can recover: the host has waited for the pass, and the step is
  /// counted, so it is made.
  [[nodiscard]] const uint32_t* stop_step_on(void* stream) const;
  /// As stop_step_on, for one kernel of which one thread reads it, once: it costs no call.
  [[nodiscard]] const uint32_t* stop_step_word() const;
  /// In a group that can recover: the host waits until the ranks' exchanges on GPUs are done, so that counted steps have
  /// happened when a rank dies. Must not be called while the communication stream is captured. Throws the group's cause if
  /// it broke before.
  void settle();
  /// Is all of this in one piece of memory that nccl() has given out, now or before a recovery?
  [[nodiscard]] bool gave(const std::byte* data, int64_t bytes) const noexcept;
  /// Is it such a piece?
  bool free(void* data) noexcept;
  /// Work that communicates again and again: `body` enqueues it on the stream that it is given, the communication stream,
  /// behind what is on `stream` now; what comes on `stream` then comes after it.
  void in_line(void* stream, const std::function<void(void* communication)>& body);
  /// Leave: in order (all ranks have done what they wanted), or not.
  void close(bool in_order) noexcept;
  /// The process ends by exit(), as NcclTransport::close with kOfProcess.
  void exit(bool in_order) noexcept;
  /// After close(), when its communication is not used any more: nccl() makes another one in another group.
  void end() noexcept;

 private:
  bootstrap::Control& control_;
  bootstrap::Failure& failure_;
  Health& health_;
  const ddp_group_options& options_;
  const std::shared_ptr<nccl::OwnGpu> own_;
  std::unique_ptr<nccl::NcclTransport> nccl_;
  std::atomic<nccl::NcclTransport*> published_{nullptr};  // for those who must not wait
  std::unique_ptr<gpu::Event> settled_;                   // NULL: no wait yet
};

}  // namespace ddp::group
