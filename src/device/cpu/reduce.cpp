// Chooses the loop for a reduction. Up to kMaxFold inputs are added in one pass; more, and the less usual operations, go
// block by block through a carry that stays in the nearest cache. Further outputs are copied from the first while its block
// is still there. Any thread; allocates nothing. Tested by unit/device/reduce_test.cpp.
#include "device/cpu/reduce.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/float_environment.hpp"
#include "device/cpu/ends.hpp"
#include "device/cpu/finish.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/wire.hpp"

namespace ddp::cpu {
namespace {

constexpr int64_t kBlockBytes = 16384;  // of the carry; README.md, "More than eight inputs", says why

int64_t accumulator_size(ddp_dtype dtype) noexcept { return dtype_size(accumulator_dtype(dtype)); }

bool adds(const ReduceRule& rule) noexcept { return rule.op == DDP_SUM || rule.op == DDP_AVERAGE; }

Finish finish_of(const ReduceRule& rule) noexcept { return finish_by(rule, rule.by_weight ? rule.weight_sum : rule.divisor); }

/// Weighted sums are always divided; a division by a power of two gives the bits of the multiplication.
Finish finish_of(const ReduceRule& rule, const double* weights) noexcept {
  Finish finish = finish_of(rule);
  if (weights == nullptr) return finish;
  finish.weights = weights;
  finish.divide = true;
  if (rule.op != DDP_AVERAGE) finish.divisor = 1.0;
  return finish;
}

/// The loops that add all inputs at once, to one output and over all inputs; or NULL.
struct FoldFns {
  FoldFn to_one = nullptr;
  FoldFn in_place = nullptr;
};
FoldFns folds_of(const ReduceRule& rule, int32_t in_count, const Finish& finish) noexcept {
  if (!adds(rule) || in_count > kMaxFold) return {};
  const Kernels& table = kernels();
  if (finish.weights != nullptr) return {table.weighted_to_one[rule.dtype][in_count], table.weighted_in_place[rule.dtype][in_count]};
  return {table.to_one[rule.dtype][in_count][finish.divide], table.in_place[rule.dtype][in_count][finish.divide]};
}

/// A reduction whose inputs are added at once.
struct Fold {
  FoldFn to_one;
  Finish finish;
  const void* const* in;
  int32_t in_count;
  int64_t size;

  /// Elements [at, at + n) of the inputs, to `out` [n].
  void end(int64_t at, int64_t n, void* out) const noexcept {
    Group group[kMaxFold];
    const void* here[kMaxFold] = {};
    for (int32_t k = 0; k < in_count; ++k) {
      group[k].fill(offset(in[k], at * size), n, size);
      here[k] = group[k].bytes;
    }
    to_one(here, group[0].bytes, kGroup, finish);
    group[0].empty(out, n, size);
  }
  /// Elements [at, at + n) by `loop`, n a multiple of kGroup.
  void groups(FoldFn loop, int64_t at, int64_t n, void* out) const noexcept {
    const void* here[kMaxFold] = {};
    for (int32_t k = 0; k < in_count; ++k) here[k] = offset(in[k], at * size);
    loop(here, out, n, finish);
  }
  void write(void* out, int64_t count) const noexcept {
    const Cut c = cut(out, size, count);
    if (c.head > 0) end(0, c.head, out);
    if (c.tail > c.head) groups(to_one, c.head, c.tail - c.head, offset(out, c.head * size));
    if (count > c.tail) end(c.tail, count - c.tail, offset(out, c.tail * size));
  }
  void over_inputs(FoldFn in_place, int64_t count) const noexcept {
    const Cut c = cut(in[0], size, count);
    if (c.head > 0) end_over_inputs(0, c.head);
    if (c.tail > c.head) groups(in_place, c.head, c.tail - c.head, nullptr);
    if (count > c.tail) end_over_inputs(c.tail, count - c.tail);
  }
  void end_over_inputs(int64_t at, int64_t n) const noexcept {
    Group result;
    end(at, n, result.bytes);
    for (int32_t k = 0; k < in_count; ++k) result.empty(const_cast<void*>(offset(in[k], at * size)), n, size);
  }
};

/// The loops that add one or four inputs to a carry.
struct Part {
  const PartKernels& part;
  const WeightedPartKernels& weighted;
  const double* weights;  // of all inputs; NULL: none
  int64_t size;
  int64_t carry_size;

  Part(const ReduceRule& rule, const double* of_inputs) noexcept
      : part(kernels().part[rule.dtype][rule.op == DDP_MIN   ? kMin
                                        : rule.op == DDP_MAX ? kMax
                                                             : kAdd]),
        weighted(kernels().weighted[rule.dtype]),
        weights(of_inputs),
        size(dtype_size(rule.dtype)),
        carry_size(accumulator_size(rule.dtype)) {}

  /// Inputs `first` to `first + used`.
  void groups(const void* carry_in, const void* const* in, int32_t first, int32_t used, void* carry_out, int64_t n) const noexcept {
    const bool four = used == kPartInputs;
    if (weights != nullptr) {
      const WeightedPartFn begin = four ? weighted.begin_four : weighted.begin_one;
      const WeightedPartFn carry_on = four ? weighted.carry_four : weighted.carry_one;
      return (carry_in == nullptr ? begin : carry_on)(carry_in, in, weights + first, carry_out, n);
    }
    const PartFn begin = four ? part.begin_four : part.begin_one;
    const PartFn carry_on = four ? part.carry_four : part.carry_one;
    (carry_in == nullptr ? begin : carry_on)(carry_in, in, carry_out, n);
  }
  void end(const void* carry_in, const void* const* in, int32_t first, int32_t used, void* carry_out, int64_t n) const noexcept {
    Group group[kPartInputs], carry;
    const void* here[kPartInputs] = {};
    for (int32_t k = 0; k < used; ++k) {
      group[k].fill(in[k], n, size);
      here[k] = group[k].bytes;
    }
    if (carry_in != nullptr) carry.fill(carry_in, n, carry_size);
    groups(carry_in != nullptr ? carry.bytes : nullptr, here, first, used, carry.bytes, kGroup);
    carry.empty(carry_out, n, carry_size);
  }
  /// Adds elements [at, at + n) of all inputs to a carry. `carry_in` and `carry_out` point to the first of the n.
  void block(const void* carry_in, const void* const* in, int32_t in_count, int64_t at, void* carry_out,
             int64_t n) const noexcept {
    const int64_t whole = n / kGroup * kGroup;
    for (int32_t k = 0; k < in_count;) {
      const int32_t used = in_count - k >= kPartInputs ? kPartInputs : 1;
      const void *here[kPartInputs] = {}, *rest[kPartInputs] = {};
      for (int32_t j = 0; j < used; ++j) {
        here[j] = offset(in[k + j], at * size);
        rest[j] = offset(here[j], whole * size);
      }
      if (whole > 0) groups(carry_in, here, k, used, carry_out, whole);
      const void* const carry_rest = carry_in != nullptr ? offset(carry_in, whole * carry_size) : nullptr;
      if (n > whole) end(carry_rest, rest, k, used, offset(carry_out, whole * carry_size), n - whole);
      carry_in = carry_out;
      k += used;
    }
  }
};

void finish_block(const ReduceRule& rule, const Finish& finish, const void* carry, void* out, int64_t n) noexcept {
  const FinishFn write = kernels().finish[rule.dtype][finish.divide];
  const int64_t whole = n / kGroup * kGroup;
  if (whole > 0) write(carry, out, whole, finish);
  if (n == whole) return;
  Group group;
  group.fill(offset(carry, whole * accumulator_size(rule.dtype)), n - whole, accumulator_size(rule.dtype));
  write(group.bytes, group.bytes, kGroup, finish);
  group.empty(offset(out, whole * dtype_size(rule.dtype)), n - whole, dtype_size(rule.dtype));
}

void copy_to_rest(void* const* out, int32_t out_count, int64_t from, int64_t bytes) noexcept {
  for (int32_t k = 1; k < out_count; ++k)
    if (out[k] != out[0]) std::memcpy(offset(out[k], from), offset(out[0], from), static_cast<size_t>(bytes));
}

void reduce_blocks(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
                   int64_t count, const double* weights) noexcept {
  alignas(64) std::byte carry[kBlockBytes];
  const int64_t size = dtype_size(rule.dtype);
  const int64_t block = kBlockBytes / accumulator_size(rule.dtype);
  const Finish finish = finish_of(rule, weights);
  const FoldFn fold = folds_of(rule, in_count, finish).to_one;
  const Part part(rule, weights);
  for (int64_t at = 0; at < count; at += block) {
    const int64_t n = std::min(block, count - at);
    void* const first = offset(out[0], at * size);
    if (fold != nullptr) {
      const void* here[kMaxFold] = {};
      for (int32_t k = 0; k < in_count; ++k) here[k] = offset(in[k], at * size);
      Fold{fold, finish, here, in_count, size}.write(first, n);
    } else {
      part.block(nullptr, in, in_count, at, carry, n);
      finish_block(rule, finish, carry, first, n);
    }
    copy_to_rest(out, out_count, at * size, n * size);
  }
}

}  // namespace

void reduce(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count,
            int64_t count, const double* weights) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  if (rule.is_wired()) return wire::reduce(rule, in, in_count, out, out_count, count, weights);
  const Finish finish = finish_of(rule, weights);
  if (const FoldFns loops = folds_of(rule, in_count, finish); loops.to_one != nullptr) {
    const Fold fold{loops.to_one, finish, in, in_count, dtype_size(rule.dtype)};
    if (out_count == in_count && std::equal(out, out + out_count, in)) return fold.over_inputs(loops.in_place, count);
    if (out_count == 1) return fold.write(out[0], count);
  }
  reduce_blocks(rule, in, in_count, out, out_count, count, weights);
}

void reduce_part(const ReduceRule& rule, const void* carry_in, const void* const* in, int32_t in_count, void* carry_out,
                 int64_t count, const double* weights) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  if (rule.is_wired()) return wire::part(rule, carry_in, in, in_count, carry_out, count, weights);
  const int64_t size = accumulator_size(rule.dtype);
  if (in_count == 0 && carry_in != carry_out) std::memcpy(carry_out, carry_in, static_cast<size_t>(count * size));
  const Part part(rule, weights);
  const int64_t block = kBlockBytes / size;
  for (int64_t at = 0; at < count; at += block) {
    const void* const from = carry_in != nullptr ? offset(carry_in, at * size) : nullptr;
    part.block(from, in, in_count, at, offset(carry_out, at * size), std::min(block, count - at));
  }
}

void pack(const ReduceRule& rule, const void* in, double weight, void* out, int64_t count) noexcept {
  reduce_part(rule, nullptr, &in, 1, out, count, &weight);
}

void unpack(const ReduceRule& rule, const void* sum, void* out, int64_t count) noexcept { reduce_finish(rule, sum, &out, 1, count); }

void reduce_finish(const ReduceRule& rule, const void* carry, void* const* out, int32_t out_count, int64_t count) noexcept {
  if (count <= 0) return;
  const StandardFloats environment;
  if (rule.is_wired()) return wire::finish(rule, carry, out, out_count, count);
  const int64_t size = dtype_size(rule.dtype);
  const int64_t block = out_count == 1 ? count : kBlockBytes / accumulator_size(rule.dtype);
  const Finish finish = finish_of(rule);
  for (int64_t at = 0; at < count; at += block) {
    const int64_t n = std::min(block, count - at);
    finish_block(rule, finish, offset(carry, at * accumulator_size(rule.dtype)), offset(out[0], at * size), n);
    copy_to_rest(out, out_count, at * size, n * size);
  }
}

}  // namespace ddp::cpu
