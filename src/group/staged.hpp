// SPDX-License-Identifier: Apache-2.0
// The tensors of one call as the hosts exchange them: those in host memory as they are, those on a GPU as copies in
// page-locked host memory (device/gpu/staging.hpp). So each rank has its tensors where it likes, one exchange serves all,
// and it uses nothing of NCCL.
//
// The copies run on the stream of the call, and no thread of the library enqueues anything there: what the call reads is
// copied by the thread that makes or posts it, and what came is copied by the thread that makes it, or that learns of the
// request's end. A GPU that is lost breaks the group.
// Threads: one at a time; is_ready() and await() on whichever thread works on the exchange.
// Tested by gpu_host/messages_test.cpp and gpu_host/requests_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.hpp"
#include "device/gpu/staging.hpp"

namespace ddp::group {

class Group;

class StagedTensors {
 public:
  /// `function`: the public call, which lives for ever; `stream`: of tensors on a GPU.
  StagedTensors(Group& group, const char* function, void* stream) : group_(group), function_(function), stream_(stream) {}
  StagedTensors(const StagedTensors&) = delete;
  StagedTensors& operator=(const StagedTensors&) = delete;

  /// What is sent of a tensor. Of one on a GPU the copy begins: it is complete after await().
  /// Throws INVALID_STATE if the stream is being captured, OUT_OF_MEMORY, INVALID_ARGUMENT (a stream of another device).
  [[nodiscard]] Tensor read(const Tensor& tensor);
  /// Where a tensor is received. One on a GPU has it after deliver(). Throws as read().
  [[nodiscard]] Tensor write(const Tensor& tensor);

  /// Is everything that read() began to copy there?
  [[nodiscard]] bool is_ready() const;
  /// Until it is, or the group breaks.
  void await() const;

  [[nodiscard]] bool delivers() const noexcept { return output_.has_value(); }
  /// What was received goes to the GPU, in the order of the stream. Once.
  void deliver();

 private:
  struct OnGpu {
    Tensor tensor;
    gpu::Staging::Lease block;
  };
  [[nodiscard]] OnGpu stage(const Tensor& tensor);
  void check() const;
  template <class Body>
  auto or_fail(const Body& body) const;

  Group& group_;
  const char* const function_;
  void* const stream_;
  std::vector<OnGpu> inputs_;
  std::optional<OnGpu> output_;  // no call has two
};

}  // namespace ddp::group
