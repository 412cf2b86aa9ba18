// SPDX-License-Identifier: Apache-2.0
// Element types: size, name, and which type their sums are kept in.
// Tested by unit/core/dtype_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/types.h"

namespace ddp {

/// Bytes of one element; 0 for a value that is no dtype.
[[nodiscard]] constexpr int64_t dtype_size(ddp_dtype dtype) noexcept {
  switch (dtype) {
    case DDP_C128: return 16;
    case DDP_C64:
    case DDP_F64:
    case DDP_I64: return 8;
    case DDP_F32:
    case DDP_I32: return 4;
    case DDP_F16:
    case DDP_BF16: return 2;
    case DDP_U8: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_dtype(ddp_dtype dtype) noexcept { return dtype_size(dtype) != 0; }

[[nodiscard]] constexpr bool is_floating(ddp_dtype dtype) noexcept {
  return dtype == DDP_F32 || dtype == DDP_F64 || dtype == DDP_F16 || dtype == DDP_BF16;
}

[[nodiscard]] constexpr bool is_complex(ddp_dtype dtype) noexcept { return dtype == DDP_C64 || dtype == DDP_C128; }

/// The type of a complex number's parts; other types are their own.
[[nodiscard]] constexpr ddp_dtype part_dtype(ddp_dtype dtype) noexcept {
  return dtype == DDP_C64 ? DDP_F32 : dtype == DDP_C128 ? DDP_F64 : dtype;
}

/// The type in which elements of `dtype` are added: F32 for the 16-bit floats, otherwise the type itself.
[[nodiscard]] constexpr ddp_dtype accumulator_dtype(ddp_dtype dtype) noexcept {
  return dtype == DDP_F16 || dtype == DDP_BF16 ? DDP_F32 : dtype;
}

[[nodiscard]] constexpr const char* dtype_name(ddp_dtype dtype) noexcept {
  switch (dtype) {
    case DDP_F32: return "F32";
    case DDP_F64: return "F64";
    case DDP_F16: return "F16";
    case DDP_BF16: return "BF16";
    case DDP_I32: return "I32";
    case DDP_I64: return "I64";
    case DDP_U8: return "U8";
    case DDP_C64: return "C64";
    case DDP_C128: return "C128";
  }
  return "unknown dtype";
}

}  // namespace ddp
