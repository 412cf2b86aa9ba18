// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/low_rank.hpp"

#include <algorithm>
#include <cmath>

#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

constexpr int64_t kBlock = 4096;

template <class T>
const VectorKernels& loops() noexcept {
  return kernels().vector[sizeof(T) == 4 ? DDP_F32 : DDP_F64];
}

template <class T>
double dot(const T* a, const T* b, int64_t count) noexcept {
  double sum = 0;
  for (int64_t at = 0; at < count; at += kBlock) sum += loops<T>().dot(a + at, b + at, std::min(kBlock, count - at));
  return sum;
}

template <class T>
void add_scaled(T* to, const T* from, T factor, int64_t count) noexcept {
  loops<T>().add_scaled(to, from, static_cast<double>(factor), count);
}

template <class T>
void project_of(const LowRank& of, const T* matrix, const T* right, T* left) noexcept {
  for (int64_t row = 0; row < of.rows; ++row)
    for (int32_t k = 0; k < of.rank; ++k)
      left[k * of.rows + row] = static_cast<T>(dot(matrix + row * of.columns, right + k * of.columns, of.columns));
}

template <class T>
void project_back_of(const LowRank& of, const T* matrix, const T* left, T* right) noexcept {
  std::fill(right, right + of.rank * of.columns, T{0});
  for (int64_t row = 0; row < of.rows; ++row)
    for (int32_t k = 0; k < of.rank; ++k)
      add_scaled(right + k * of.columns, matrix + row * of.columns, left[k * of.rows + row], of.columns);
}

/// One row of left x right^T, from the first vector to the last.
template <class T, bool Subtract>
void expand_of(const LowRank& of, const T* left, const T* right, T* out) noexcept {
  for (int64_t row = 0; row < of.rows; ++row) {
    T* const to = out + row * of.columns;
    if (!Subtract) std::fill(to, to + of.columns, T{0});
    for (int32_t k = 0; k < of.rank; ++k) {
      const T factor = left[k * of.rows + row];
      add_scaled(to, right + k * of.columns, Subtract ? -factor : factor, of.columns);
    }
  }
}

template <class T>
void orthonormalize_of(T* vectors, int64_t length, int32_t count) noexcept {
  constexpr double kDependent = sizeof(T) == 4 ? 1e-5 : 1e-13;  // of a vector's length: what is left of it is rounding
  for (int32_t k = 0; k < count; ++k) {
    T* const mine = vectors + k * length;
    const double before = std::sqrt(dot(mine, mine, length));
    for (int32_t turn = 0; turn < 2; ++turn)
      for (int32_t j = 0; j < k; ++j) {
        const T* const other = vectors + j * length;
        add_scaled(mine, other, static_cast<T>(-dot(mine, other, length)), length);
      }
    const double after = std::sqrt(dot(mine, mine, length));
    const bool keeps = after > kDependent * before && std::isfinite(after);
    const T factor = keeps ? static_cast<T>(1.0 / after) : T{0};
    for (int64_t i = 0; i < length; ++i) mine[i] = keeps ? mine[i] * factor : T{0};
  }
}

/// Calls fn(T{}) with the type of the elements.
template <class Fn>
void with_type(ddp_dtype dtype, Fn&& fn) noexcept {
  if (dtype == DDP_F64)
    fn(double{});
  else
    fn(float{});
}

}  // namespace

void project(const LowRank& of, const void* matrix, const void* right, void* left) noexcept {
  with_type(of.dtype, [&](auto type) {
    using T = decltype(type);
    project_of(of, static_cast<const T*>(matrix), static_cast<const T*>(right), static_cast<T*>(left));
  });
}

void project_back(const LowRank& of, const void* matrix, const void* left, void* right) noexcept {
  with_type(of.dtype, [&](auto type) {
    using T = decltype(type);
    project_back_of(of, static_cast<const T*>(matrix), static_cast<const T*>(left), static_cast<T*>(right));
  });
}

void expand(const LowRank& of, const void* left, const void* right, void* out) noexcept {
  with_type(of.dtype, [&](auto type) {
    using T = decltype(type);
    expand_of<T, false>(of, static_cast<const T*>(left), static_cast<const T*>(right), static_cast<T*>(out));
  });
}

void subtract_expanded(const LowRank& of, const void* left, const void* right, void* out) noexcept {
  with_type(of.dtype, [&](auto type) {
    using T = decltype(type);
    expand_of<T, true>(of, static_cast<const T*>(left), static_cast<const T*>(right), static_cast<T*>(out));
  });
}

void orthonormalize(ddp_dtype dtype, void* vectors, int64_t length, int32_t count) noexcept {
  with_type(dtype, [&](auto type) { orthonormalize_of(static_cast<decltype(type)*>(vectors), length, count); });
}

void add_to(ddp_dtype dtype, void* target, const void* source, int64_t count) noexcept {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    add_scaled(static_cast<T*>(target), static_cast<const T*>(source), T{1}, count);
  });
}

}  // namespace ddp::cpu
