// SPDX-License-Identifier: Apache-2.0
// Norms of arrays on a GPU: parts are noted, then one kernel for each type adds their terms on the device, with the bits of
// device/cpu/arrays.hpp. The sum comes to the host only when it is read.
//
// Cost: one read of the parts, and 560 bytes to the host. Nothing is allocated after the first use.
// Threads: one at a time, and in one order of streams.
// Tested by gpu_host/norms_test.cpp.
#pragma once

#include <cstdint>

#include "core/exact_sum.hpp"
#include "device/gpu/device.hpp"
#include "device/span_lists.hpp"

namespace ddp::gpu {

class Norms {
 public:
  explicit Norms(const Device& device);

  void clear() noexcept { parts_.clear(); }
  /// For the next sum or largest. Parts of one array begin at multiples of cpu::kNormBlock, as everywhere.
  void add(const Tensor& part) { parts_.add(part); }
  /// Device memory that holds, in the stream's order, the words of the sum of the terms of the p-norm (1 or 2); until the
  /// next call. The parts are forgotten.
  int64_t* start_sum(int32_t p, void* stream);
  /// The host waits for the stream.
  [[nodiscard]] ExactSum finish(void* stream);
  [[nodiscard]] ExactSum sum(int32_t p, void* stream);
  /// The largest magnitude, NaN if there is one. The host waits for the stream.
  [[nodiscard]] double largest(void* stream);
  [[nodiscard]] const Device& device() const noexcept { return device_; }

 private:
  static constexpr int64_t kBytes = static_cast<int64_t>(ExactSum::kWords * sizeof(int64_t));
  struct Forget;

  const Device& device_;
  device::SpanLists parts_;
  Array words_;  // of the sum; the first one takes the bits of the largest magnitude
  Pinned host_;
};

}  // namespace ddp::gpu
