// SPDX-License-Identifier: Apache-2.0
// Sparse sums: every rank gives some rows of a table with their indices, and all get the union with the sum or mean of each
// row.
//
// The indices are sent first (they are small); every rank then knows the sorted union, lays its rows into a dense array of
// as many rows, with zeros where it has none, and that array is reduced as any other. So the result has the bits that the
// dense gradients of all ranks would have given, for every dtype; rows that many ranks share are sent once, not once a rank.
// Cost: two small messages and an all-reduce of the union. Promises: the same bits on every rank; memory in proportion to
// the union.
// Threads: those of the group.
// Tested by conformance/rows_test.cpp and capi/rows_test.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.hpp"
#include "ddp/types.h"

namespace ddp::group {

class Group;

class Rows {
 public:
  /// Collective. `indices` I64 [k], `rows` [k, ...]: checked, not complex. Returns the number of rows of the union; they
  /// stay until the next call. Throws MISMATCH if the ranks' rows differ in dtype or width or op, and what collectives
  /// throw.
  int64_t all_reduce(Group& group, const Tensor& indices, const Tensor& rows, ddp_reduce op);

  /// Copies the last result. Throws INVALID_ARGUMENT unless the tensors fit it, INVALID_STATE without a result.
  void get(const Tensor& indices, const Tensor& rows) const;

 private:
  [[nodiscard]] int64_t row_bytes() const noexcept { return width_ * dtype_size(dtype_); }
  void exchange_indices(Group& group, const std::vector<int64_t>& mine, int64_t most);
  void lay_out(const Tensor& indices, const Tensor& rows);

  bool has_result_ = false;
  ddp_dtype dtype_ = DDP_F32;
  int64_t width_ = 0;              // elements of a row
  std::vector<int64_t> indices_;   // sorted, each once
  std::vector<std::byte> values_;  // a row for each, and what was needed before
};

}  // namespace ddp::group
