// SPDX-License-Identifier: Apache-2.0
// Norms of many arrays, on any device: parts are noted, then each device adds the terms of its own, and the sums are joined
// exactly. So the bits do not depend on the device of an array.
//
// The host waits for a GPU once, when it reads the number; meanwhile it adds the arrays in its own memory.
// Cost on a GPU: one read of the parts, and 560 bytes to the host. Nothing is allocated there after the first use.
// Threads: one at a time, and in one order of streams.
// Tested by gpu_host/norms_test.cpp, gpu_host/gradients_test.cpp and unit/device/host_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/exact_sum.hpp"
#include "device/device.hpp"

namespace ddp::device {

/// The norm of parts on one device.
class Norm {
 public:
  virtual ~Norm() = default;
  virtual void clear() noexcept = 0;
  /// For the next sum or largest. Parts of one array begin at multiples of cpu::kNormBlock, as everywhere.
  virtual void add(const Tensor& part) = 0;
  /// The terms of the p-norm (1 or 2). The parts are forgotten.
  virtual void start(int32_t p, void* stream) = 0;
  /// What was started on this stream.
  [[nodiscard]] virtual ExactSum finish(void* stream) = 0;
  /// The largest magnitude, NaN if there is one. The parts are forgotten.
  [[nodiscard]] virtual double largest(void* stream) = 0;
};

class Norms {
 public:
  /// Parts that were noted are forgotten.
  void clear() noexcept;
  void add(const Tensor& part);
  [[nodiscard]] ExactSum sum(int32_t p, void* stream);
  [[nodiscard]] double largest(void* stream);

 private:
  struct Place {
    const Device* device;
    std::unique_ptr<Norm> norm;
  };
  std::vector<Place> places_;  // host memory first
};

}  // namespace ddp::device
