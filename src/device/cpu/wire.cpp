// Sums whose terms and carries have 16 bits. F32 goes through the loops of the instruction set; F64 is rounded one by one, because no
// instruction takes 64 bits to 16 with one rounding. Blocks are small enough for their carry to stay in the nearest cache.
// Any thread; allocates nothing. Tested by unit/device/wire_test.cpp.
#include "device/cpu/wire.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.hpp"
#include "base/float16.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/ends.hpp"
#include "device/cpu/finish.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu::wire {
namespace {

constexpr int64_t kBlock = 4096;  // elements
constexpr int64_t kShort = 2;     // bytes of an element under way

const WireKernels& loops(const ReduceRule& rule) noexcept { return kernels().wire[rule.wire == DDP_F16 ? 0 : 1]; }

/// One sum under way: adds the terms of one input after another to a carry.
class Sum {
 public:
  explicit Sum(const ReduceRule& rule) noexcept
      : rule_(rule), loops_(loops(rule)), finish_(finish_by(rule, rule.divisor)), size_(dtype_size(rule.dtype)) {}

  /// out = carry + term of `in` [n]; carry NULL: the term alone. At most kBlock elements.
  void add(const void* carry, const void* in, double weight, void* out, int64_t n) const noexcept {
    if (rule_.dtype == rule_.wire) return add_packed(carry, in, out, n);
    if (rule_.dtype == DDP_F64) return add_doubles(carry, in, weight, out, n);
    const int64_t whole = n / kGroup * kGroup;
    if (whole > 0) term(carry, in, weight, out, whole);
    if (n == whole) return;
    Group input, before;
    input.fill(offset(in, whole * size_), n - whole, size_);
    if (carry != nullptr) before.fill(offset(carry, whole * kShort), n - whole, kShort);
    term(carry != nullptr ? before.bytes : nullptr, input.bytes, weight, before.bytes, kGroup);
    before.empty(offset(out, whole * kShort), n - whole, kShort);
  }

 private:
  void term(const void* carry, const void* in, double weight, void* out, int64_t n) const noexcept {
    (carry != nullptr ? loops_.add_term : loops_.first_term)[finish_.divide](carry, in, weight, out, n, finish_);
  }

  void add_packed(const void* carry, const void* in, void* out, int64_t n) const noexcept {
    if (carry == nullptr) {
      std::memmove(out, in, static_cast<size_t>(n * kShort));
      return;
    }
    const int64_t whole = n / kGroup * kGroup;
    if (whole > 0) loops_.add(carry, in, out, whole);
    if (n == whole) return;
    Group a, b;
    a.fill(offset(carry, whole * kShort), n - whole, kShort);
    b.fill(offset(in, whole * kShort), n - whole, kShort);
    loops_.add(a.bytes, b.bytes, a.bytes, kGroup);
    a.empty(offset(out, whole * kShort), n - whole, kShort);
  }

  void add_doubles(const void* carry, const void* in, double weight, void* out, int64_t n) const noexcept {
    alignas(64) uint16_t terms[kBlock];
    for (int64_t i = 0; i < n; ++i) {
      double value = 0;
      std::memcpy(&value, offset(in, i * size_), sizeof value);
      value *= weight;
      value = finish_.divide ? value / finish_.divisor : value * finish_.factor;
      if (std::isnan(value)) value = __builtin_nan("");  // one pattern, as everywhere
      terms[i] = rule_.wire == DDP_F16 ? double_to_half(value) : double_to_bfloat(value);
    }
    add_packed(carry, terms, out, n);
  }

  const ReduceRule& rule_;
  const WireKernels& loops_;
  const Finish finish_;
  const int64_t size_;
};

}  // namespace

void part(const ReduceRule& rule, const void* carry_in, const void* const* in, int32_t in_count, void* carry_out, int64_t count,
          const double* weights) noexcept {
  if (in_count == 0 && carry_in != carry_out) std::memcpy(carry_out, carry_in, static_cast<size_t>(count * kShort));
  const Sum sum(rule);
  const int64_t size = dtype_size(rule.dtype);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    const void* carry = carry_in != nullptr ? offset(carry_in, at * kShort) : nullptr;
    void* const to = offset(carry_out, at * kShort);
    for (int32_t k = 0; k < in_count; ++k, carry = to)
      sum.add(carry, offset(in[k], at * size), weights != nullptr ? weights[k] : 1.0, to, n);
  }
}

void finish(const ReduceRule& rule, const void* carry, void* const* out, int32_t out_count, int64_t count) noexcept {
  const int64_t size = dtype_size(rule.dtype);
  const bool corrects = rule.by_weight && rule.op == DDP_AVERAGE && rule.dtype != rule.wire && rule.weight_sum != rule.divisor;
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    void* const first = offset(out[0], at * size);
    convert(rule.wire, offset(carry, at * kShort), rule.dtype, first, n);
    if (corrects) scale(rule.dtype, first, n, rule.divisor / rule.weight_sum);
    for (int32_t k = 1; k < out_count; ++k)
      if (out[k] != out[0]) std::memcpy(offset(out[k], at * size), first, static_cast<size_t>(n * size));
  }
}

void reduce(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count, int64_t count,
            const double* weights) noexcept {
  alignas(64) std::byte carry[kBlock * kShort];
  const Sum sum(rule);
  const int64_t size = dtype_size(rule.dtype);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    for (int32_t k = 0; k < in_count; ++k)
      sum.add(k == 0 ? nullptr : carry, offset(in[k], at * size), weights != nullptr ? weights[k] : 1.0, carry, n);
    for (int32_t k = 0; k < out_count; ++k) {
      void* const to[] = {offset(out[k], at * size)};
      const void* const done[] = {offset(out[0], at * size)};
      if (k == 0)
        finish(rule, carry, to, 1, n);
      else if (to[0] != done[0])
        std::memcpy(to[0], done[0], static_cast<size_t>(n * size));
    }
  }
}

}  // namespace ddp::cpu::wire
