// SPDX-License-Identifier: Apache-2.0
// Products with a few vectors and orthonormal bases, against naive sums in long double.
#include "device/cpu/low_rank.hpp"

#include "device/cpu/reduce.hpp"
#include "support/check.hpp"

template <class T>
std::vector<T> some(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(static_cast<int>(random() % 2001) - 1000) / static_cast<T>(250));
  return values;
}

template <class T>
void expect_near(T got, long double wanted, long double size, const std::string& what) {
  const long double tolerance = (sizeof(T) == 4 ? 4e-6L : 1e-14L) * (size + 1);
  expect(std::fabs(static_cast<long double>(got) - wanted) <= tolerance,
         what + " is " + std::to_string(got) + ", expected " + std::to_string(wanted));
}

struct Shape {
  int64_t rows, columns;
  int32_t rank;
};
constexpr Shape kShapes[] = {{1, 1, 1}, {7, 5, 2}, {33, 129, 4}, {3, 9'001, 1}, {600, 2, 2}};

template <class T>
void products(ddp_dtype dtype) {
  for (const auto& [rows, columns, rank] : kShapes) {
    const cpu::LowRank of{dtype, rows, columns, rank};
    const std::vector<T> matrix = some<T>(rows * columns, 1), right = some<T>(columns * rank, 2),
                         left = some<T>(rows * rank, 3);
    const int64_t height = rows, width = columns;
    const auto m = [&](int64_t i, int64_t j) {
      return static_cast<long double>(matrix[static_cast<size_t>(i * width + j)]);
    };
    const auto l = [&](int32_t k, int64_t i) { return static_cast<long double>(left[static_cast<size_t>(k * height + i)]); };
    const auto r = [&](int32_t k, int64_t j) { return static_cast<long double>(right[static_cast<size_t>(k * width + j)]); };
    std::vector<T> p(left.size()), q(right.size()), out(matrix.size()), rest = matrix;
    cpu::project(of, matrix.data(), right.data(), p.data());
    cpu::project_back(of, matrix.data(), left.data(), q.data());
    cpu::expand(of, left.data(), right.data(), out.data());
    cpu::subtract_expanded(of, left.data(), right.data(), rest.data());
    for (int32_t k = 0; k < rank; ++k) {
      for (int64_t i = 0; i < rows; ++i) {
        long double sum = 0;
        for (int64_t j = 0; j < columns; ++j) sum += m(i, j) * r(k, j);
        expect_near(p[static_cast<size_t>(k * rows + i)], sum, 16.0L * static_cast<long double>(columns), "project");
      }
      for (int64_t j = 0; j < columns; ++j) {
        long double sum = 0;
        for (int64_t i = 0; i < rows; ++i) sum += m(i, j) * l(k, i);
        expect_near(q[static_cast<size_t>(k * columns + j)], sum, 16.0L * static_cast<long double>(rows), "project_back");
      }
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        long double sum = 0;
        for (int32_t k = 0; k < rank; ++k) sum += l(k, i) * r(k, j);
        const auto at = static_cast<size_t>(i * columns + j);
        expect_near(out[at], sum, 64, "expand");
        expect_near(rest[at], m(i, j) - sum, 64, "subtract_expanded");
      }
  }
}

template <class T>
void bases(ddp_dtype dtype) {
  constexpr int64_t kLength = 501;
  constexpr int32_t kCount = 5;
  std::vector<T> vectors = some<T>(kLength * kCount, 9);
  for (size_t i = 0; i < kLength; ++i) {
    vectors[3 * kLength + i] = vectors[i] - 2 * vectors[kLength + i];  // spanned by others
    vectors[4 * kLength + i] = vectors[4 * kLength + i] * static_cast<T>(1e-12) + vectors[i];
  }
  const std::vector<T> before = vectors;
  cpu::orthonormalize(dtype, vectors.data(), kLength, kCount);
  const auto dot = [&](const std::vector<T>& a, size_t x, const std::vector<T>& b, size_t y) {
    long double sum = 0;
    for (size_t i = 0; i < kLength; ++i)
      sum += static_cast<long double>(a[x * kLength + i]) * static_cast<long double>(b[y * kLength + i]);
    return sum;
  };
  const long double tolerance = sizeof(T) == 4 ? 1e-6L : 1e-13L;
  for (const size_t a : {0U, 1U, 2U})
    for (const size_t b : {0U, 1U, 2U})
      expect(std::fabs(dot(vectors, a, vectors, b) - (a == b ? 1 : 0)) < tolerance, "orthonormal");
  expect(dot(vectors, 3, vectors, 3) == 0, "what others span becomes zero");
  if (sizeof(T) == 4) expect(dot(vectors, 4, vectors, 4) == 0, "rounding is no direction");
  long double kept = 0;  // the first three still span what they spanned
  for (const size_t b : {0U, 1U, 2U}) kept += dot(before, 2, vectors, b) * dot(before, 2, vectors, b);
  expect(std::fabs(kept / dot(before, 2, before, 2) - 1) < 10 * tolerance, "the same space");
  std::vector<T> zeros(kLength * 2);
  cpu::orthonormalize(dtype, zeros.data(), kLength, 2);
  for (const T value : zeros) expect(value == 0, "zero stays zero");
}

ddp_case(products_are_those_of_a_naive_sum) {
  products<float>(DDP_F32);
  products<double>(DDP_F64);
}
ddp_case(bases_are_orthonormal_and_drop_what_is_dependent) {
  bases<float>(DDP_F32);
  bases<double>(DDP_F64);
}
/// Bases and products have the same bits on every instruction set that this machine has.
ddp_case(every_instruction_set_gives_the_same_bits) {
  const cpu::LowRank of{DDP_F32, 61, 1'003, 3};
  std::vector<float> first;
  for (const char* set : {"portable", "avx2", "avx512", "neon"}) {
    if (!cpu::set_instruction_set(set)) continue;
    std::vector<float> matrix = some<float>(of.rows * of.columns, 4), left(61 * 3), right = some<float>(1'003 * 3, 5);
    cpu::project(of, matrix.data(), right.data(), left.data());
    cpu::orthonormalize(DDP_F32, left.data(), of.rows, of.rank);
    cpu::project_back(of, matrix.data(), left.data(), right.data());
    cpu::subtract_expanded(of, left.data(), right.data(), matrix.data());
    matrix.insert(matrix.end(), right.begin(), right.end());
    if (first.empty()) first = matrix;
    expect(std::memcmp(first.data(), matrix.data(), first.size() * sizeof(float)) == 0, set);
  }
}
ddp_case(sums_are_added_in_place) {
  float a[3] = {1, 2, 3};
  const float b[3] = {10, -2, 0.5F};
  cpu::add_to(DDP_F32, a, b, 3);
  expect(a[0] == 11 && a[1] == 0 && a[2] == 3.5F, "sums");
}
