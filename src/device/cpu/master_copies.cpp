// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/master_copies.hpp"

#include <cstring>

#include "device/cpu/arrays.hpp"

namespace ddp::cpu {
namespace {

constexpr int64_t kHalf = 2;  // bytes of an element

void refresh_block(ddp_dtype dtype, const std::byte* value, float* copy, int64_t count) noexcept {
  alignas(64) std::byte rounded[kMasterBlock * kHalf];
  convert(DDP_F32, copy, dtype, rounded, count);
  if (std::memcmp(rounded, value, static_cast<size_t>(count * kHalf)) == 0) return;
  for (int64_t i = 0; i < count; ++i)
    if (std::memcmp(rounded + i * kHalf, value + i * kHalf, kHalf) != 0)
      convert(dtype, value + i * kHalf, DDP_F32, copy + i, 1);
}

}  // namespace

void refresh_copy(ddp_dtype dtype, const void* value, float* copy, int64_t count) noexcept {
  for (int64_t at = 0; at < count; at += kMasterBlock)
    refresh_block(dtype, static_cast<const std::byte*>(value) + at * kHalf, copy + at, std::min(count - at, kMasterBlock));
}

void widen(ddp_dtype dtype, const void* from, float* to, int64_t count) noexcept {
  convert(dtype, from, DDP_F32, to, count);
}

void narrow(ddp_dtype dtype, const float* from, void* to, int64_t count) noexcept {
  convert(DDP_F32, from, dtype, to, count);
}

}  // namespace ddp::cpu
