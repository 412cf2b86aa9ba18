// SPDX-License-Identifier: Apache-2.0
// Groups with the option `reproducible`, and numbers that show in which order they were added.
#pragma once

#include "support/gpu_world.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {

using GroupBytes = std::vector<std::byte>;

/// Numbers of many sizes, so that every order of adding them has bits of its own.
inline GroupBytes random_numbers(ddp_dtype dtype, int64_t count, uint64_t seed) {
  GroupBytes bytes(static_cast<size_t>(count * dtype_size(dtype)));
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) {
    const double number = static_cast<double>(static_cast<int64_t>(random() >> 11)) * 0x1p-52 - 1;
    const double scaled = i % 50 == 0 ? -0.0 : std::ldexp(number, static_cast<int>(random() % 8));  // -0 on all ranks
    if (is_floating(dtype))
      set_element(dtype, bytes.data(), static_cast<size_t>(i), scaled);
    else
      for (int64_t b = 0; b < dtype_size(dtype); ++b)
        bytes[static_cast<size_t>(i * dtype_size(dtype) + b)] = static_cast<std::byte>(random() >> 56);
  }
  return bytes;
}

inline ddp_group_options with_reproducible(int32_t value) {
  ddp_group_options options = world_options();
  options.reproducible = value;
  return options;
}

inline void run_reproducible(int size, const std::function<void(group::Group&, int)>& body) {
  run_gpu_groups_with(size, with_reproducible(1), body);
}

}  // namespace ddp::test
