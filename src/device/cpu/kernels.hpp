// SPDX-License-Identifier: Apache-2.0
// The table of loops that each instruction set fills in, and the choice among them.
//
// kernels_portable.cpp, kernels_avx2.cpp, kernels_avx512.cpp and kernels_neon.cpp build the same templates
// (make_kernels.hpp) with other vector widths and other compiler flags; each exports one constant table. Nothing else leaves
// those files, because an inline function that was compiled with wide instructions must never be the copy that the linker
// keeps for the whole library. Any thread. Tested by unit/device/reduce_test.cpp and unit/device/arrays_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/types.h"

namespace ddp::cpu {

/// What happens to a sum before it is rounded: a division, or a multiplication that gives the same bits.
struct Finish {
  double factor = 1.0;
  double divisor = 1.0;
  bool divide = false;
  const double* weights = nullptr;  // one for each input, for the weighted sums
};

/// Every count below is a multiple of this number of elements; the ends of arrays are filled up to it (reduce.cpp,
/// arrays.cpp).
inline constexpr int kGroup = 128;

/// The tree over in[0], in[1], ..., finished. The number of inputs is part of the function.
using FoldFn = void (*)(const void* const* in, void* out, int64_t count, const Finish& finish) noexcept;

/// out = the tree over in[0], in[1], ..., unfinished; or `left` + it. `left` and `out` have the type of nodes and may be
/// equal.
using NodeFn = void (*)(const void* left, const void* const* in, void* out, int64_t count, const Finish& finish) noexcept;

using FinishFn = void (*)(const void* carry, void* out, int64_t count, const Finish& finish) noexcept;

using ConvertFn = void (*)(const void* source, void* target, int64_t count) noexcept;

inline constexpr int kDtypes = 8;      // ddp_dtype is the index; 0 is unused
inline constexpr int kMaxFold = 8;     // most inputs that one loop adds
inline constexpr int kNodeWidths = 4;  // 1, 2, 4 and 8 inputs
inline constexpr int kSumLanes = 32;   // partial sums of a norm, whatever the vector's width
enum FoldOp : int { kAdd = 0, kMin = 1, kMax = 2, kMultiply = 3, kFoldOps = 4 };

/// Unfinished nodes of 1 << [..] inputs: alone, and behind the node to their left.
struct NodeKernels {
  NodeFn alone[kNodeWidths];
  NodeFn behind[kNodeWidths];
};

/// Nodes of a 16-bit wire type.
struct WireKernels {
  NodeKernels terms[2];  // of F32 inputs, [Finish::divide]; weights may be NULL
  NodeKernels packed;    // of terms that were rounded already
};

/// For low_rank.cpp; the vectors are aligned as their elements are.
struct VectorKernels {
  double (*dot)(const void* a, const void* b, int64_t count) noexcept;
  void (*add_scaled)(void* to, const void* from, double factor, int64_t count) noexcept;
};

struct ArrayKernels {
  void (*scale)(void* data, int64_t count, double factor) noexcept;
  void (*limit)(void* data, int64_t count, double limit) noexcept;
  double (*sum_magnitudes)(const void* data, int64_t count) noexcept;
  double (*sum_squares)(const void* data, int64_t count) noexcept;
  uint64_t (*largest)(const void* data, int64_t count) noexcept;   // the bits of the largest magnitude; a NaN is largest
  int64_t (*nonfinite)(const void* data, int64_t count) noexcept;  // count below 65536 times the lanes of a vector
};

struct Kernels {
  const char* name;
  FoldFn to_one[kDtypes][kMaxFold + 1][2];    // sums written to `out`, [Finish::divide]; NULL where the nodes must be used
  FoldFn in_place[kDtypes][kMaxFold + 1][2];  // sums written over every input; `out` is ignored
  FoldFn weighted_to_one[kDtypes][kMaxFold + 1];  // the same of floats, with Finish::weights and a division
  FoldFn weighted_in_place[kDtypes][kMaxFold + 1];
  NodeKernels nodes[kDtypes][kFoldOps];  // of the accumulator type
  NodeKernels weighted[kDtypes];         // sums of floating dtypes, with Finish::weights
  FinishFn finish[kDtypes][2];
  WireKernels wire[2];                  // F16, BF16
  VectorKernels vector[kDtypes];        // F32, F64
  ArrayKernels array[kDtypes];          // floating dtypes
  ConvertFn convert[kDtypes][kDtypes];  // [from][to]; NULL from F64 to 16 bits, which is done one by one
};

/// The table in use.
[[nodiscard]] const Kernels& kernels() noexcept;

extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kNeonKernels;

}  // namespace ddp::cpu
