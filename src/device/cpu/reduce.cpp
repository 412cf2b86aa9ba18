// Chooses the loop for a reduction. Up to kMaxFold inputs are added in one pass; more, and the less usual operations, go block by block
// through a carry that stays in the nearest cache. Further outputs are copied from the first while its block is still there.
// Any thread; allocates nothing. Tested by unit/device/reduce_test.cpp.
#include "device/cpu/reduce.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/dtype.hpp"
#include "device/cpu/float_environment.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

constexpr int64_t kBlockBytes = 4096;  // of the carry: small against a first-level cache of 32 KiB

const void* offset(const void* base, int64_t bytes) noexcept { return static_cast<const std::byte*>(base) + bytes; }
void* offset(void* base, int64_t bytes) noexcept { return static_cast<std::byte*>(base) + bytes; }

int64_t accumulator_size(ddp_dtype dtype) noexcept { return dtype_size(accumulator_dtype(dtype)); }

Finish finish_of(const ReduceRule& rule) noexcept {
  Finish finish;
  if (rule.op != DDP_AVERAGE || rule.divisor == 1) return finish;
  finish.divisor = rule.divisor;
  const bool power_of_two = (rule.divisor & (rule.divisor - 1)) == 0;
  finish.divide = !(power_of_two && is_floating(rule.dtype));
  if (!finish.divide) finish.factor = 1.0 / rule.divisor;
  return finish;
}

const PartKernels& parts_of(const ReduceRule& rule) noexcept {
  const FoldOp op = rule.op == DDP_MIN ? kMin : rule.op == DDP_MAX ? kMax : kAdd;
  return kernels().part[rule.dtype][op];
}

/// Adds elements [at, at + n) of all inputs to a carry. `carry_in` and `carry_out` point to the first of the n.
void part_block(const ReduceRule& rule, const void* carry_in, const void* const* in, int32_t in_count, int64_t at, void* carry_out,
                int64_t n) noexcept {
  const PartKernels& part = parts_of(rule);
  const int64_t bytes = at * dtype_size(rule.dtype);
  for (int32_t k = 0; k < in_count;) {
    const bool four = in_count - k >= kPartInputs;
    const int32_t used = four ? kPartInputs : 1;
    const void* here[kPartInputs] = {};
    for (int32_t j = 0; j < used; ++j) here[j] = offset(in[k + j], bytes);
    const PartFn begin = four ? part.begin_four : part.begin_one;
    const PartFn carry_on = four ? part.carry_four : part.carry_one;
    (carry_in == nullptr ? begin : carry_on)(carry_in, here, carry_out, n);
    carry_in = carry_out;
    k += used;
  }
}

void copy_to_rest(void* const* out, int32_t out_count, int64_t from, int64_t bytes) noexcept {
  for (int32_t k = 1; k < out_count; ++k)
    if (out[k] != out[0]) std::memcpy(offset(out[k], from), offset(out[0], from), static_cast<size_t>(bytes));
}

void reduce_blocks(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
                   int64_t count) noexcept {
  alignas(64) std::byte carry[kBlockBytes];
  const int64_t size = dtype_size(rule.dtype);
  const int64_t block = kBlockBytes / accumulator_size(rule.dtype);
  const Finish finish = finish_of(rule);
  const FinishFn write = kernels().finish[rule.dtype];
  const FoldFn fold = in_count <= kMaxFold && (rule.op == DDP_SUM || rule.op == DDP_AVERAGE)
                          ? kernels().to_one[rule.dtype][in_count] : nullptr;
  for (int64_t at = 0; at < count; at += block) {
    const int64_t n = std::min(block, count - at);
    void* const first = offset(out[0], at * size);
    if (fold != nullptr) {
      const void* here[kMaxFold] = {};
      for (int32_t k = 0; k < in_count; ++k) here[k] = offset(in[k], at * size);
      fold(here, &first, n, finish);
    } else {
      part_block(rule, nullptr, in, in_count, at, carry, n);
      write(carry, first, n, finish);
    }
    copy_to_rest(out, out_count, at * size, n * size);
  }
}

}  // namespace

void reduce(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
            int64_t count) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  const bool adds = rule.op == DDP_SUM || rule.op == DDP_AVERAGE;
  if (adds && in_count <= kMaxFold && kernels().to_one[rule.dtype][in_count] != nullptr) {
    if (out_count == in_count && std::equal(out, out + out_count, in))
      return kernels().in_place[rule.dtype][in_count](in, nullptr, count, finish_of(rule));
    if (out_count == 1) return kernels().to_one[rule.dtype][in_count](in, out, count, finish_of(rule));
  }
  reduce_blocks(rule, in, in_count, out, out_count, count);
}

void reduce_part(const ReduceRule& rule, const void* carry_in, const void* const* in, int32_t in_count, void* carry_out,
                 int64_t count) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  const int64_t size = accumulator_size(rule.dtype);
  if (in_count == 0 && carry_in != carry_out) std::memmove(carry_out, carry_in, static_cast<size_t>(count * size));
  const int64_t block = kBlockBytes / size;
  for (int64_t at = 0; at < count; at += block) {
    const void* const from = carry_in != nullptr ? offset(carry_in, at * size) : nullptr;
    part_block(rule, from, in, in_count, at, offset(carry_out, at * size), std::min(block, count - at));
  }
}

void reduce_finish(const ReduceRule& rule, const void* carry, void* const* out, int32_t out_count, int64_t count) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  const int64_t size = dtype_size(rule.dtype);
  const int64_t block = out_count == 1 ? count : kBlockBytes / accumulator_size(rule.dtype);
  const Finish finish = finish_of(rule);
  for (int64_t at = 0; at < count; at += block) {
    const int64_t n = std::min(block, count - at);
    kernels().finish[rule.dtype](offset(carry, at * accumulator_size(rule.dtype)), offset(out[0], at * size), n, finish);
    copy_to_rest(out, out_count, at * size, n * size);
  }
}

}  // namespace ddp::cpu
