// SPDX-License-Identifier: Apache-2.0
// Contents of an event of the kind kGpu: work in a stream of a GPU. `number` is the bucket, or kNoBucket; `peer` is a
// GpuRow; `pass` is a GpuWork. Plain values.
#pragma once

#include <cstdint>

namespace ddp::trace {

enum class GpuWork : uint8_t {
  kPack,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kUnpack,
  kDivide,    // a sum to a mean
  kNorm,      // of gradients
  kDecide,    // whether a step is made, and by which scale
  kStep,      // of an optimizer
  kAverages,  // that follow the parameters
  kCopy       // gradients or parameters are copied, scaled, limited or exchanged
};
inline constexpr GpuWork kLastGpuWork = GpuWork::kCopy;
inline constexpr uint32_t kNoBucket = 0xffff'ffff;

/// A stream of a GPU, as a number.
struct GpuRow {
  static constexpr int32_t kCommunication = 0;
  static constexpr int32_t kUpdates = 1;  // the library's own, separate from the communication
  static constexpr int32_t kProgram = 2;  // the first one of the program, and so on
  static constexpr int32_t kLast = 31;    // that one and all others
  int32_t device = 0;
  int32_t stream = kCommunication;

  [[nodiscard]] constexpr int32_t number() const noexcept { return device << 8 | stream; }
  [[nodiscard]] static constexpr GpuRow of(int32_t number) noexcept { return {number >> 8, number & 0xff}; }
};

}  // namespace ddp::trace
