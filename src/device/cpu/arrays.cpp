// SPDX-License-Identifier: Apache-2.0
// Chooses the loop for one array. Any thread; allocates nothing.
// Tested by unit/device/arrays_test.cpp.
#include "device/cpu/arrays.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "core/dtype.hpp"
#include "core/float16.hpp"
#include "device/cpu/ends.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

constexpr int64_t kBlock = 8192;  // elements; a count of them fits in a 16-bit lane

/// A magnitude given by its bits.
double value_of(ddp_dtype dtype, uint64_t bits) noexcept {
  switch (dtype) {
    case DDP_F64: return std::bit_cast<double>(bits);
    case DDP_F16: return static_cast<double>(half_to_float(static_cast<uint16_t>(bits)));
    case DDP_BF16: return static_cast<double>(bfloat_to_float(static_cast<uint16_t>(bits)));
    default: return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
}

/// Calls step(first element, elements) for each block in order; what is left over is filled up with zeros, which count
/// nowhere.
template <int64_t length = kBlock, class Step>
void each_block(ddp_dtype dtype, const void* data, int64_t count, Step step) noexcept {
  const int64_t size = dtype_size(dtype);
  const int64_t whole = count / kGroup * kGroup;
  for (int64_t at = 0; at < whole; at += length) step(offset(data, at * size), std::min(length, whole - at));
  if (count <= whole) return;
  Group group;
  group.fill(offset(data, whole * size), count - whole, size);
  step(group.bytes, kGroup);
}

template <class Encode>
void convert_doubles(const void* source, void* target, int64_t count, Encode encode) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    double value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(source) + i * 8, sizeof value);
    const uint16_t bits = encode(value);
    std::memcpy(static_cast<std::byte*>(target) + i * 2, &bits, sizeof bits);
  }
}

/// Every element by itself, in place.
void change_all(ddp_dtype dtype, void* data, int64_t count, double number,
                void (*loop)(void*, int64_t, double) noexcept) noexcept {
  if (count <= 0) return;
  const int64_t size = dtype_size(dtype);
  const Cut c = cut(data, size, count);
  const auto end = [=](int64_t at, int64_t n) {
    if (n == 0) return;
    Group group;
    group.fill(offset(data, at * size), n, size);
    loop(group.bytes, kGroup, number);
    group.empty(offset(data, at * size), n, size);
  };
  end(0, c.head);
  loop(offset(data, c.head * size), c.tail - c.head, number);
  end(c.tail, count - c.tail);
}

}  // namespace

void scale(ddp_dtype dtype, void* data, int64_t count, double factor) noexcept {
  change_all(dtype, data, count, factor, kernels().array[dtype].scale);
}

void limit(ddp_dtype dtype, void* data, int64_t count, double limit) noexcept {
  change_all(dtype, data, count, limit, kernels().array[dtype].limit);
}

void add_norm_terms(ddp_dtype dtype, const void* data, int64_t count, double p, ExactSum& sum) noexcept {
  const ArrayKernels& array = kernels().array[dtype];
  const auto loop = p == 1 ? array.sum_magnitudes : array.sum_squares;
  each_block<kNormBlock>(dtype, data, count, [&](const void* block, int64_t n) { sum.add(loop(block, n)); });
}

double largest_magnitude(ddp_dtype dtype, const void* data, int64_t count) noexcept {
  uint64_t most = 0;
  each_block(dtype, data, count,
             [&](const void* block, int64_t n) { most = std::max(most, kernels().array[dtype].largest(block, n)); });
  const double value = value_of(dtype, most);
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

int64_t count_nonfinite(ddp_dtype dtype, const void* data, int64_t count) noexcept {
  int64_t sum = 0;
  each_block(dtype, data, count, [&](const void* block, int64_t n) { sum += kernels().array[dtype].nonfinite(block, n); });
  return sum;
}

void convert(ddp_dtype from, const void* source, ddp_dtype to, void* target, int64_t count) noexcept {
  if (count <= 0) return;
  if (from == to) {
    std::memmove(target, source, static_cast<size_t>(count * dtype_size(from)));
  } else if (from == DDP_F64 && to == DDP_F16) {
    convert_doubles(source, target, count, double_to_half);
  } else if (from == DDP_F64 && to == DDP_BF16) {
    convert_doubles(source, target, count, double_to_bfloat);
  } else {
    const ConvertFn loop = kernels().convert[from][to];
    const int64_t whole = count / kGroup * kGroup;
    loop(source, target, whole);
    if (count == whole) return;
    Group group, result;
    group.fill(offset(source, whole * dtype_size(from)), count - whole, dtype_size(from));
    loop(group.bytes, result.bytes, kGroup);
    result.empty(offset(target, whole * dtype_size(to)), count - whole, dtype_size(to));
  }
}

}  // namespace ddp::cpu
