// SPDX-License-Identifier: Apache-2.0
// The update rules written down naively, one element at a time, all in F64; and arrays of any floating type for them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "core/float16.hpp"
#include "ddp/optimizer.h"

namespace ddp::test {

inline constexpr ddp_dtype kFloats[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16};

/// Half of the distance between 1 and the next number: the largest relative error of one rounding.
inline double unit_of(ddp_dtype dtype) {
  switch (dtype) {
    case DDP_F64: return 0x1p-53;
    case DDP_F16: return 0x1p-11;
    case DDP_BF16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

inline double get_element(ddp_dtype dtype, const void* array, size_t i) {
  const auto* const from = static_cast<const char*>(array) + i * static_cast<size_t>(dtype_size(dtype));
  if (dtype == DDP_F64) {
    double value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (dtype == DDP_F32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<double>(dtype == DDP_F16 ? half_to_float(bits) : bfloat_to_float(bits));
}

inline void set_element(ddp_dtype dtype, void* array, size_t i, double value) {
  auto* const to = static_cast<char*>(array) + i * static_cast<size_t>(dtype_size(dtype));
  const auto single = static_cast<float>(value);
  if (dtype == DDP_F64) {
    std::memcpy(to, &value, sizeof value);
  } else if (dtype == DDP_F32) {
    std::memcpy(to, &single, sizeof single);
  } else if (dtype == DDP_I64 || dtype == DDP_I32 || dtype == DDP_U8) {
    const auto whole = static_cast<int64_t>(value);
    std::memcpy(to, &whole, static_cast<size_t>(dtype_size(dtype)));
  } else {
    const uint16_t bits = dtype == DDP_F16 ? float_to_half(single) : float_to_bfloat(single);
    std::memcpy(to, &bits, sizeof bits);
  }
}

/// An array of one type, 64-byte alignment not guaranteed on purpose.
struct Array {
  ddp_dtype dtype;
  std::vector<std::byte> bytes;

  Array(ddp_dtype of, size_t count) : dtype(of), bytes(count * static_cast<size_t>(dtype_size(of))) {}
  [[nodiscard]] void* data() { return bytes.data(); }
  [[nodiscard]] const void* data() const { return bytes.data(); }
  [[nodiscard]] std::byte* at(size_t i) { return bytes.data() + i * static_cast<size_t>(dtype_size(dtype)); }
  [[nodiscard]] double operator[](size_t i) const { return get_element(dtype, bytes.data(), i); }
  void set(size_t i, double value) { set_element(dtype, bytes.data(), i, value); }
};

/// Numbers between -scale and scale.
inline void fill_random(Array& array, size_t count, double scale, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < count; ++i) array.set(i, (static_cast<double>(random() >> 11) * 0x1p-52 - 1.0) * scale);
}

/// One parameter element with its state, as the documents of torch.optim.SGD, Adam and AdamW define the algorithms.
struct NaiveElement {
  double value = 0;
  double buffer = 0;
  double exp_avg = 0;
  double exp_avg_sq = 0;
  int steps = 0;

  void sgd(const ddp_sgd_options& o, double rate, double decay, double grad) {
    ++steps;
    if (decay != 0) grad += decay * value;
    if (o.momentum != 0) {
      buffer = steps > 1 ? o.momentum * buffer + (1 - o.dampening) * grad : grad;
      grad = o.nesterov != 0 ? grad + o.momentum * buffer : buffer;
    }
    value -= rate * grad;
  }

  void adam(const ddp_adam_options& o, double rate, double decay, double grad) {
    ++steps;
    if (o.decoupled != 0) {
      value -= rate * decay * value;
    } else if (decay != 0) {
      grad += decay * value;
    }
    exp_avg = o.beta1 * exp_avg + (1 - o.beta1) * grad;
    exp_avg_sq = o.beta2 * exp_avg_sq + (1 - o.beta2) * grad * grad;
    const double mean = exp_avg / (1 - std::pow(o.beta1, steps));
    const double square = exp_avg_sq / (1 - std::pow(o.beta2, steps));
    value -= rate * mean / (std::sqrt(square) + o.epsilon);
  }
};

}  // namespace ddp::test
