// SPDX-License-Identifier: Apache-2.0
// Sparse sums against dense ones: the union of all ranks' rows, and bits as if dense gradients had been reduced.

#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "unit/device/oracle.hpp"

/// What one rank gives.
struct Given {
  std::vector<int64_t> indices;
  Bytes rows;
};

Given given_by(int rank, ddp_dtype dtype, int64_t width, uint64_t seed) {
  std::mt19937_64 random(seed * 31 + static_cast<uint64_t>(rank));
  Given given;
  given.indices.resize(random() % 4 == 0 ? 0 : random() % 60);
  for (int64_t& index : given.indices) index = static_cast<int64_t>(random() % 40) * (seed % 2 == 0 ? 1 : 1'000'000'007);
  given.rows = random_values(part_dtype(dtype),
                             static_cast<int64_t>(given.indices.size()) * width * (is_complex(dtype) ? 2 : 1), random());
  return given;
}

/// Dense gradients of all ranks over the indices that occur, reduced by the naive rule.
std::map<int64_t, Bytes> dense_reduce(const std::vector<Given>& all, ddp_dtype dtype, int64_t width, ddp_reduce op) {
  const auto row = static_cast<size_t>(width * dtype_size(dtype));
  std::map<int64_t, std::vector<Bytes>> dense;  // by index, a row for each rank
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (size_t i = 0; i < all[rank].indices.size(); ++i) {
      auto& ranks = dense.emplace(all[rank].indices[i], std::vector<Bytes>(all.size(), Bytes(row))).first->second;
      const Bytes more(all[rank].rows.begin() + static_cast<std::ptrdiff_t>(i * row),
                       all[rank].rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * row));
      Bytes added(row);
      naive_reduce({dtype, DDP_SUM, 1}, {ranks[rank].data(), more.data()}, added.data(), width);
      ranks[rank] = added;
    }
  std::map<int64_t, Bytes> result;
  for (const auto& [index, ranks] : dense) {
    std::vector<const void*> in;
    for (const Bytes& each : ranks) in.push_back(each.data());
    Bytes out(row);
    naive_reduce({dtype, op, static_cast<int32_t>(all.size())}, in, out.data(), width);
    result[index] = out;
  }
  return result;
}

Tensor rows_tensor(Bytes& bytes, ddp_dtype dtype, int64_t count, int64_t width) {
  Tensor tensor = flat_tensor(bytes.data(), dtype, count * width);
  tensor.ndim = 2, tensor.shape[0] = count, tensor.shape[1] = width;
  return tensor;
}

void check(group::Group& group, int rank, ddp_dtype dtype, int64_t width, ddp_reduce op, uint64_t seed) {
  std::vector<Given> all;
  for (int r = 0; r < group.size(); ++r) all.push_back(given_by(r, dtype, width, seed));
  Given& mine = all[static_cast<size_t>(rank)];
  const auto given = static_cast<int64_t>(mine.indices.size());
  const int64_t count = group.all_reduce_rows(flat_tensor(mine.indices.data(), DDP_I64, given),
                                              rows_tensor(mine.rows, dtype, given, width), op);
  const std::map<int64_t, Bytes> wanted = dense_reduce(all, dtype, width, op);
  const std::string what = "seed " + std::to_string(seed) + ", " + dtype_name(dtype) + ", width " + std::to_string(width);
  expect_equal(static_cast<size_t>(count), wanted.size(), what + ": rows");
  std::vector<int64_t> indices(static_cast<size_t>(count));
  Bytes rows(static_cast<size_t>(count * width * dtype_size(dtype)));
  group.get_rows(flat_tensor(indices.data(), DDP_I64, count), rows_tensor(rows, dtype, count, width));
  size_t at = 0;
  for (const auto& [index, row] : wanted) {
    expect_equal(indices[at], index, what + ": index");
    if (group.size() > 1)  // alone nothing is added to anything, so a negative zero stays one
      expect(std::memcmp(rows.data() + at * row.size(), row.data(), row.size()) == 0,
             what + ": row " + std::to_string(index));
    ++at;
  }
}

ddp_ranks_case_on(kThreePaths, run_on, rows_have_the_bits_of_dense_gradients, 1, 2, 3, 4) {
  uint64_t seed = 1;
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_C64, DDP_C128})
    for (const int64_t width : {1, 3, 64})
      for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE}) check(group, rank, dtype, width, op, seed++);
}

ddp_ranks_case_on(kThreePaths, run_on, nobody_may_have_rows, 3) {
  Tensor rows = flat_tensor(nullptr, DDP_F32, 0);
  rows.ndim = 2, rows.shape[1] = 7;
  expect_equal(group.all_reduce_rows(flat_tensor(nullptr, DDP_I64, 0), rows, DDP_SUM), int64_t{0}, "rows");
  group.get_rows(flat_tensor(nullptr, DDP_I64, 0), rows);
}

ddp_ranks_case_on(kThreePaths, run_on, rows_of_another_width_are_a_mismatch_and_the_group_stays, 3) {
  float row[4] = {1, 2, 3, 4};
  int64_t index = 5;
  Tensor rows = flat_tensor(row, DDP_F32, rank == 1 ? 4 : 3);
  rows.ndim = 2, rows.shape[0] = 1, rows.shape[1] = rows.count;
  const Tensor indices = flat_tensor(&index, DDP_I64, 1);
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)group.all_reduce_rows(indices, rows, DDP_SUM); },
               {"rank 0 gives F32 rows of 3 elements (sum), but rank 1"});
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { group.get_rows(indices, rows); });
  rows.count = rows.shape[1] = 3;
  expect_equal(group.all_reduce_rows(indices, rows, DDP_SUM), int64_t{1}, "rows afterwards");
  float sum[3] = {};
  Tensor got = rows;
  got.data = reinterpret_cast<std::byte*>(sum);
  group.get_rows(indices, got);
  expect(sum[0] == 3 && sum[2] == 9, "the sum");
}
