// SPDX-License-Identifier: Apache-2.0
// What the tests of the update rules work on: a parameter's arrays, with numbers of every kind, and the rules.
#pragma once

#include "device/cpu/update_kernels.hpp"
#include "support/check.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {

constexpr size_t kCount = 203;  // whole vectors of every width, and a rest

/// A parameter with everything a rule may keep for it.
struct UpdateState {
  Array value, grad, first, second;

  explicit UpdateState(ddp_dtype dtype, size_t count = kCount)
      : value(dtype, count),
        grad(dtype, count),
        first(cpu::moment_dtype(dtype), count),
        second(cpu::moment_dtype(dtype), count) {}
  [[nodiscard]] ddp_dtype dtype() const { return value.dtype; }
  [[nodiscard]] NaiveElement element(size_t i, int steps) const { return {value[i], first[i], first[i], second[i], steps}; }
};

inline UpdateState random_state(ddp_dtype dtype, uint64_t seed) {
  UpdateState state(dtype);
  fill_random(state.value, kCount, 2.0, seed);
  return state;
}

using UpdateRule = std::function<void(UpdateState&, size_t from, size_t count)>;

inline UpdateRule adam_rule(const cpu::AdamStep& step) {
  return [step](UpdateState& s, size_t from, size_t count) {
    cpu::adam_update(step, s.dtype(), s.value.at(from), s.grad.at(from), s.first.at(from), s.second.at(from),
                     static_cast<int64_t>(count));
  };
}

inline UpdateRule sgd_rule(const cpu::SgdStep& step) {
  return [step](UpdateState& s, size_t from, size_t count) {
    void* const buffer = step.mode == cpu::Momentum::kNone ? nullptr : s.first.at(from);
    cpu::sgd_update(step, s.dtype(), s.value.at(from), s.grad.at(from), buffer, static_cast<int64_t>(count));
  };
}

/// Ordinary numbers with zeros, subnormal, huge and infinite ones among them.
inline UpdateState wild_state(ddp_dtype dtype) {
  UpdateState state = random_state(dtype, 5);
  fill_random(state.grad, kCount, 1.0, 6);
  fill_random(state.first, kCount, 1.0, 7);
  fill_random(state.second, kCount, 1.0, 8);
  const double specials[] = {
      0.0, -0.0, 0x1p-24, -0x1p-133, 0x1p-149, 65504, -65536, 0x1p127, std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < kCount; ++i) state.second.set(i, std::abs(state.second[i]));
  for (size_t k = 0; k < std::size(specials); ++k) {
    state.value.set(5 * k, specials[k]);
    state.grad.set(5 * k + 1, specials[k]);
    state.first.set(5 * k + 2, specials[k]);
    state.second.set(5 * k + 3, std::abs(specials[k]));
  }
  return state;
}

/// Equal bits; any NaN equals any NaN.
inline void expect_same_array(const Array& got, const Array& wanted, const std::string& what) {
  const auto size = static_cast<size_t>(dtype_size(got.dtype));
  for (size_t i = 0; i < got.bytes.size() / size; ++i) {
    if (std::isnan(got[i]) && std::isnan(wanted[i])) continue;
    if (std::memcmp(got.bytes.data() + i * size, wanted.bytes.data() + i * size, size) != 0)
      throw std::runtime_error(what + ", " + dtype_name(got.dtype) + ", element " + std::to_string(i) + ": " +
                               std::to_string(got[i]) + " instead of " + std::to_string(wanted[i]));
  }
}

inline void expect_same(const UpdateState& got, const UpdateState& wanted, const std::string& what) {
  expect_same_array(got.value, wanted.value, what + ", value");
  expect_same_array(got.first, wanted.first, what + ", first state");
  expect_same_array(got.second, wanted.second, what + ", second state");
}

}  // namespace ddp::test
