// SPDX-License-Identifier: Apache-2.0
// Norms of many arrays, on any device: parts are noted, then each device adds the terms of its own, and the sums are joined
// exactly. So the bits do not depend on the device of an array.
//
// The host waits for a GPU once, when it reads the number; meanwhile it adds the arrays in its own memory.
// Cost on a GPU: one read of the parts, and 560 bytes to the host. Nothing is allocated there after the first use.
// Threads: one at a time, and in one order of streams.
// Tested by gpu_host/gradients_test.cpp and unit/device/host_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/exact_sum.hpp"
#include "core/tensor.hpp"
#include "device/gpu/norms.hpp"

namespace ddp::model {

class Norms {
 public:
  /// Parts that were noted are forgotten.
  void clear() noexcept;
  /// For the next sum or largest. Parts of one array begin at multiples of cpu::kNormBlock, as everywhere.
  void add(const Tensor& part);
  /// The terms of the p-norm (1 or 2), in the order of the stream. The parts are forgotten.
  [[nodiscard]] ExactSum sum(int32_t p, void* stream);
  /// The largest magnitude, NaN if there is one. The parts are forgotten.
  [[nodiscard]] double largest(void* stream);

 private:
  [[nodiscard]] gpu::Norms& of(const gpu::Device& device);

  std::vector<Tensor> host_parts_;
  std::vector<std::unique_ptr<gpu::Norms>> gpus_;  // one for each GPU that had a part
};

}  // namespace ddp::model
