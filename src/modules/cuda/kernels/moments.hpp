// SPDX-License-Identifier: Apache-2.0
// Count, mean and sum of squared differences of sets of values and how two sets become one (extra/batch_norm/moments.cpp,
// after Chan, Golub and LeVeque, 1979); and how the values of a batch [rows, channels, inner] are divided over blocks of
// threads.
//
// With long stretches (inner 32 or more) a block takes a part of one channel; otherwise a row is taken as `channels * inner`
// columns, a thread for each, and a block takes 32 columns and a part of the rows. The division depends on the shape alone,
// so results do too.
// Pure functions, also for the host.
// Tested by unit/cuda/moments_test.cpp.
#pragma once

#include <cstdint>

#include "device/gpu/gpu_abi.h"
#include "modules/cuda/kernels/numbers.hpp"

namespace ddp::cuda {

struct Set {
  double count;
  double mean;
  double m2;
};

DDP_HD Set joined(const Set& a, const Set& b) noexcept {
  if (b.count == 0) return a;
  const double all = a.count + b.count;
  const double difference = b.mean - a.mean;
  const double share = b.count / all;
  return {all, a.mean + difference * share, a.m2 + (b.m2 + difference * difference * (a.count * share))};
}

inline constexpr int64_t kShortInner = 32;
inline constexpr uint32_t kColumns = 32;        // of a block, where stretches are short
inline constexpr uint32_t kRowLanes = 8;        // threads that share a column
inline constexpr uint32_t kHeld = 8;            // values that a thread holds at a time
inline constexpr int64_t kChunk = 256 * kHeld;  // values that a block holds at a time, where stretches are long
inline constexpr int64_t kWantedBlocks = 1024;

/// How many blocks work on each channel or column, and how many sets that makes for one channel.
struct Division {
  bool by_columns;
  int64_t columns;  // channels, or channels * inner
  int64_t splits;   // of each
  [[nodiscard]] DDP_HD int64_t sets(int64_t channels) const noexcept {
    return channels == 0 ? 0 : columns / channels * splits;
  }
  [[nodiscard]] DDP_HD int64_t blocks() const noexcept {
    return (by_columns ? (columns + kColumns - 1) / kColumns : columns) * splits;
  }
};

DDP_HD int64_t clamped(int64_t x, int64_t most) noexcept { return x < 1 || most < 1 ? 1 : x < most ? x : most; }

DDP_HD Division division_of(const ddp_gpu_batch& batch) noexcept {
  if (batch.inner >= kShortInner) {
    const int64_t chunks = (batch.rows * batch.inner + kChunk - 1) / kChunk;
    return {false, batch.channels, clamped(batch.channels > 0 ? kWantedBlocks / batch.channels : 1, (chunks + 3) / 4)};
  }
  const int64_t columns = batch.channels * batch.inner;
  const int64_t groups = (columns + kColumns - 1) / kColumns;
  return {true, columns, clamped(groups > 0 ? kWantedBlocks / groups : 1, (batch.rows + 127) / 128)};
}

/// Part `index` of `parts` of [0, count), which begins at the first and ends before the second.
struct Part {
  int64_t begin;
  int64_t end;
};
DDP_HD Part part_of(int64_t count, int64_t parts, int64_t index) noexcept {
  const int64_t each = count / parts;
  const int64_t more = count % parts;  // the first ones have one more
  const int64_t begin = index * each + (index < more ? index : more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

/// The set of `count` values value(0), value(1), ...: the mean first, then the differences.
template <class Value>
DDP_HD Set set_of(uint32_t count, Value value) noexcept {
  if (count == 0) return {0, 0, 0};
  double sum = 0;
  DDP_UNROLL
  for (uint32_t i = 0; i < kHeld; ++i)
    if (i < count) sum += value(i);
  const double mean = sum / static_cast<double>(count);
  double m2 = 0;
  DDP_UNROLL
  for (uint32_t i = 0; i < kHeld; ++i)
    if (i < count) m2 += (value(i) - mean) * (value(i) - mean);
  return {static_cast<double>(count), mean, m2};
}

}  // namespace ddp::cuda
