// SPDX-License-Identifier: Apache-2.0
// Products of a matrix with a few vectors, and an orthonormal basis: the arithmetic of PowerSGD. A matrix is row-major; a
// set of `rank` vectors is stored one after the other. dtype is F32 or F64.
//
// Every sum has one order, whatever the machine: dots take 16 partial sums over blocks of 4,096 elements, which are added in
// F64; products with the transposed matrix add its rows in order. So ranks that start from the same bits end with the same
// bits.
// Cost: each product reads the matrix once. Any thread; allocates nothing.
// Tested by unit/device/low_rank_test.cpp.
#pragma once

#include <cstdint>

#include "ddp/types.h"

namespace ddp::cpu {

/// A row-major matrix and the number of vectors that stand for it.
struct LowRank {
  ddp_dtype dtype = DDP_F32;
  int64_t rows = 0;
  int64_t columns = 0;
  int32_t rank = 1;
};

/// left [rank vectors of rows] = matrix x right [rank vectors of columns].
void project(const LowRank& of, const void* matrix, const void* right, void* left) noexcept;

/// right = matrix^T x left.
void project_back(const LowRank& of, const void* matrix, const void* left, void* right) noexcept;

/// out = left x right^T, or out -= left x right^T.
void expand(const LowRank& of, const void* left, const void* right, void* out) noexcept;
void subtract_expanded(const LowRank& of, const void* left, const void* right, void* out) noexcept;

/// Makes the `count` vectors of `length` elements orthonormal (modified Gram-Schmidt, each vector twice). A vector that is
/// zero, or that the ones before it span up to rounding, becomes zero.
void orthonormalize(ddp_dtype dtype, void* vectors, int64_t length, int32_t count) noexcept;

/// target += source.
void add_to(ddp_dtype dtype, void* target, const void* source, int64_t count) noexcept;

}  // namespace ddp::cpu
