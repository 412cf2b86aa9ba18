// SPDX-License-Identifier: Apache-2.0
// Arrays of any element type for tests of collectives: reproducible random elements, and the answer by cpu::reduce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::test {

using Bytes = std::vector<std::byte>;

inline constexpr ddp_dtype kAllDtypes[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8};
inline constexpr ddp_reduce kAllOps[] = {DDP_AVERAGE, DDP_SUM, DDP_MIN, DDP_MAX};

/// Finite elements; floats of very different sizes, so that another order of addition gives other bits.
inline Bytes random_values(ddp_dtype dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(static_cast<size_t>(count * dtype_size(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    std::byte* to = bytes.data() + i * dtype_size(dtype);
    const double value = (static_cast<double>(bits >> 32) / 4294967296.0 - 0.5) * static_cast<double>(1U << (bits & 7U));
    if (dtype == DDP_F64) {
      std::memcpy(to, &value, 8);
    } else if (dtype == DDP_F32) {
      const auto single = static_cast<float>(value);
      std::memcpy(to, &single, 4);
    } else if (dtype == DDP_F16) {  // sign, exponents of 2^-6 to 2^1, any fraction
      const auto half = static_cast<uint16_t>((bits & 0x83ffU) | ((9U + (bits >> 40) % 8U) << 10));
      std::memcpy(to, &half, 2);
    } else if (dtype == DDP_BF16) {
      const auto half = static_cast<uint16_t>((bits & 0x807fU) | ((121U + (bits >> 40) % 8U) << 7));
      std::memcpy(to, &half, 2);
    } else {
      std::memcpy(to, &bits, static_cast<size_t>(dtype_size(dtype)));
    }
  }
  return bytes;
}

/// One array per rank.
inline std::vector<Bytes> random_inputs(int ranks, ddp_dtype dtype, int64_t count, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks; ++rank)
    inputs.push_back(random_values(dtype, count, seed * 1000 + static_cast<uint64_t>(rank)));
  return inputs;
}

/// What every transport must give, bit for bit.
inline Bytes reduced(const std::vector<Bytes>& inputs, ddp_dtype dtype, ddp_reduce op, int64_t count) {
  std::vector<const void*> in;
  for (const Bytes& input : inputs) in.push_back(input.data());
  Bytes result(inputs.front().size());
  void* out = result.data();
  const auto ranks = static_cast<int32_t>(inputs.size());
  cpu::reduce(cpu::ReduceRule{dtype, op, ranks}, in.data(), ranks, &out, 1, count);
  return result;
}

}  // namespace ddp::test
