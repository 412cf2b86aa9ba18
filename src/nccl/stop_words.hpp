// SPDX-License-Identifier: Apache-2.0
// The word that stops kernels: the host sets it when the group breaks, and kernels that change what must not be changed then
// look at a copy of it, one for each stream, that was made in the order of that stream.
// Threads: any.
// Tested by gpu_host/failure_test.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/gpu/device.hpp"
#include "device/gpu/gpu_abi.h"

namespace ddp::nccl {

class StopWords {
 public:
  explicit StopWords(const gpu::Device& device);

  /// The copy of this stream, made when the stream comes to this point.
  [[nodiscard]] ddp_gpu_stop copy_on(void* stream);
  /// The word itself, for a kernel of which one thread reads it, once: others would not see the same.
  [[nodiscard]] ddp_gpu_stop original() const noexcept;
  /// Stop what comes from here. Quick.
  void set() noexcept;
  /// A few bytes of device memory that no stream uses.
  [[nodiscard]] std::byte* spare() const noexcept;

 private:
  [[nodiscard]] std::byte* word_of(void* stream);

  const gpu::Device& device_;
  gpu::Pinned word_;
  gpu::Array copies_;
  std::mutex mutex_;            // guards streams_
  std::vector<void*> streams_;  // which stream has which copy
};

}  // namespace ddp::nccl
