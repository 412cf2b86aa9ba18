// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/tree.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/dtype.hpp"
#include "core/float16.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/ends.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp::cpu {
namespace {

// How a sum becomes a mean: by a division, or by a multiplication that gives the same bits. A pure function.
Finish finish_by(const ReduceRule& rule, double divisor) noexcept {
  Finish finish;
  finish.divisor = divisor;
  if (rule.op != DDP_AVERAGE || divisor == 1.0) return finish;
  int exponent = 0;
  const bool power_of_two = std::frexp(divisor, &exponent) == 0.5 && std::abs(exponent) < 64;
  finish.divide = !(power_of_two && is_floating(rule.dtype));
  if (!finish.divide) finish.factor = 1.0 / divisor;
  return finish;
}

/// The end of a sum whose rule has a wire type (reduce.hpp, "Two bytes on the wire"): elements of a finished sum of terms.
void finish_wired(const ReduceRule& rule, const void* sum, void* out, int64_t count) noexcept {
  convert(rule.wire, sum, rule.dtype, out, count);
  const bool corrects =
      rule.by_weight && rule.op == DDP_AVERAGE && rule.dtype != rule.wire && rule.weight_sum != rule.divisor;
  if (corrects) scale(rule.dtype, out, count, rule.divisor / rule.weight_sum);
}

constexpr int64_t kPiece = 512;  // elements that a missing leaf is given at a time

template <class T>
constexpr std::array<T, kPiece> filled(T value) noexcept {
  std::array<T, kPiece> all{};
  for (T& each : all) each = value;
  return all;
}

/// 1, which changes nothing that it is multiplied by.
const void* one(ddp_dtype dtype) noexcept {
  alignas(64) static constexpr auto kF32 = filled(1.0F);
  alignas(64) static constexpr auto kF64 = filled(1.0);
  alignas(64) static constexpr auto kHalf = filled(uint16_t{0x3c00});
  alignas(64) static constexpr auto kBrain = filled(uint16_t{0x3f80});
  alignas(64) static constexpr auto kI32 = filled(int32_t{1});
  alignas(64) static constexpr auto kI64 = filled(int64_t{1});
  alignas(64) static constexpr auto kU8 = filled(uint8_t{1});
  switch (dtype) {
    case DDP_F32: return kF32.data();
    case DDP_F64: return kF64.data();
    case DDP_F16: return kHalf.data();
    case DDP_BF16: return kBrain.data();
    case DDP_I32: return kI32.data();
    case DDP_I64: return kI64.data();
    default: return kU8.data();
  }
}

/// -0.0, which changes nothing that it is added to; of a product, 1.
const void* neutral(ddp_dtype dtype, bool multiplies) noexcept {
  if (multiplies) return one(dtype);
  alignas(64) static constexpr auto kF32 = filled(-0.0F);
  alignas(64) static constexpr auto kF64 = filled(-0.0);
  alignas(64) static constexpr auto kSmall = filled(uint16_t{0x8000});
  alignas(64) static constexpr auto kWhole = filled(int64_t{0});
  switch (dtype) {
    case DDP_F32: return kF32.data();
    case DDP_F64: return kF64.data();
    case DDP_F16:
    case DDP_BF16: return kSmall.data();
    default: return kWhole.data();
  }
}

/// One element's term, rounded once to the wire type.
uint16_t term_of(double value, double weight, const Finish& finish, ddp_dtype wire) noexcept {
  value *= weight;
  value = finish.divide ? value / finish.divisor : value * finish.factor;
  if (std::isnan(value)) value = __builtin_nan("");  // one pattern, as everywhere
  return wire == DDP_F16 ? double_to_half(value) : double_to_bfloat(value);
}

FoldOp fold_op(ddp_reduce op) noexcept {
  return op == DDP_MIN ? kMin : op == DDP_MAX ? kMax : op == DDP_PRODUCT ? kMultiply : kAdd;
}

}  // namespace

void Leaves::trim() noexcept {
  int32_t present = 0;
  for (int32_t k = 0; k < width; ++k) present += at[k] != nullptr ? 1 : 0;
  if (present == width) return;
  int32_t first = 0;
  while (width > 0 && at[width - 1] == nullptr) --width;
  while (width - first > 1) {
    const auto mid = static_cast<int32_t>(sum_mid(first, width));
    if (std::any_of(at + first, at + mid, [](const void* leaf) { return leaf != nullptr; })) break;
    first = mid;
  }
  int32_t kept = 0;
  for (int32_t k = first; k < width; ++k) {
    if (at[k] == nullptr && present <= 2) continue;
    at[kept] = at[k];
    weight[kept++] = at[k] != nullptr ? weight[k] : 1.0;
  }
  width = kept;
  has_holes = present != width;
}

NodeLoops::NodeLoops(const ReduceRule& rule, bool weighted) noexcept
    : finish_(finish_by(rule, rule.is_wired() && !rule.summed ? rule.divisor : 1.0)),
      leaf_(rule.dtype),
      wire_(rule.wire),
      leaf_size_(dtype_size(rule.dtype)),
      node_size_(dtype_size(rule.carry_dtype())),
      weighted_(weighted),
      repeats_(rule.op == DDP_MIN || rule.op == DDP_MAX),
      multiplies_(rule.op == DDP_PRODUCT) {
  const Kernels& table = kernels();
  if (rule.is_wired()) {
    const WireKernels& wire = table.wire[rule.wire == DDP_F16 ? 0 : 1];
    nodes_ = &wire.packed;
    leaves_ = rule.dtype == DDP_F32 ? &wire.terms[finish_.divide] : &wire.packed;
  } else {
    nodes_ = &table.nodes[rule.carry_dtype()][fold_op(rule.op)];
    leaves_ = weighted ? &table.weighted[rule.dtype] : &table.nodes[rule.dtype][fold_op(rule.op)];
  }
}

// The loops take 1, 2, 4 or 8 inputs. Three, five or six are the left half, and the rest behind it.
void NodeLoops::fold(const void* left, const Leaves& leaves, void* out, int64_t n) const noexcept {
  if (wire_ != ReduceRule::kAsItIs && leaf_ == DDP_F64) return fold_doubles(left, leaves, out, n);
  const int32_t width = leaves.width;
  const auto half = static_cast<int32_t>(width > 1 ? left_width(width) : 0);
  if (leaves.has_holes) return fold_filled(left, leaves, out, n);
  if (std::has_single_bit(static_cast<uint32_t>(width))) return fold_some(left, leaves.at, leaves.weight, width, out, n);
  if (left != nullptr || !std::has_single_bit(static_cast<uint32_t>(width - half))) return fold_filled(left, leaves, out, n);
  fold_some(nullptr, leaves.at, leaves.weight, half, out, n);
  fold_some(out, leaves.at + half, leaves.weight + half, width - half, out, n);
}

/// Missing inputs are given -0.0, for a product 1, or for MIN and MAX once more the first.
void NodeLoops::fold_filled(const void* left, const Leaves& leaves, void* out, int64_t n) const noexcept {
  Leaves all = leaves;
  const void* const first = leaves.at[0] != nullptr ? leaves.at[0] : leaves.at[1];  // trimmed: one of the two is there
  const void* const missing = repeats_ ? first : neutral(leaf_, multiplies_);
  while (!std::has_single_bit(static_cast<uint32_t>(all.width))) all.add(nullptr, 1.0);
  if (repeats_) {
    std::replace(all.at, all.at + all.width, static_cast<const void*>(nullptr), missing);
    return fold_some(left, all.at, all.weight, all.width, out, n);
  }
  for (int64_t from = 0; from < n; from += kPiece) {
    const void* here[kMaxFold] = {};
    for (int32_t k = 0; k < all.width; ++k) here[k] = all.at[k] != nullptr ? offset(all.at[k], from * leaf_size_) : missing;
    fold_some(left != nullptr ? offset(left, from * node_size_) : nullptr, here, all.weight, all.width,
              offset(out, from * node_size_), std::min(kPiece, n - from));
  }
}

/// Widths that have a loop; nothing is missing.
void NodeLoops::fold_some(const void* left, const void* const* in, const double* weights, int32_t width, void* out,
                          int64_t n) const noexcept {
  const NodeFn loop = (left != nullptr ? leaves_->behind : leaves_->alone)[std::countr_zero(static_cast<uint32_t>(width))];
  Finish finish = finish_;
  finish.weights = weighted_ ? weights : nullptr;
  const int64_t whole = n / kGroup * kGroup;
  if (whole > 0) loop(left, in, out, whole, finish);
  if (n == whole) return;
  Group group[kMaxFold], node;
  const void* here[kMaxFold] = {};
  for (int32_t k = 0; k < width; ++k) {
    group[k].fill(offset(in[k], whole * leaf_size_), n - whole, leaf_size_);
    here[k] = group[k].bytes;
  }
  if (left != nullptr) node.fill(offset(left, whole * node_size_), n - whole, node_size_);
  loop(left != nullptr ? node.bytes : nullptr, here, node.bytes, kGroup, finish);
  node.empty(offset(out, whole * node_size_), n - whole, node_size_);
}

/// No instruction takes 64 bits to 16 with one rounding, so terms of F64 are made one by one.
void NodeLoops::fold_doubles(const void* left, const Leaves& leaves, void* out, int64_t n) const noexcept {
  alignas(64) uint16_t terms[kMaxFold][kPiece];
  Leaves here = leaves;
  while (!std::has_single_bit(static_cast<uint32_t>(here.width))) here.add(nullptr, 1.0);
  for (int64_t from = 0; from < n; from += kPiece) {
    const int64_t count = std::min(kPiece, n - from);
    for (int32_t k = 0; k < here.width; ++k) {
      const bool is_there = k < leaves.width && leaves.at[k] != nullptr;
      here.at[k] = is_there ? terms[k] : neutral(wire_, false);
      for (int64_t i = 0; is_there && i < count; ++i) {
        double value = 0;
        std::memcpy(&value, offset(leaves.at[k], (from + i) * leaf_size_), sizeof value);
        terms[k][i] = term_of(value, weighted_ ? leaves.weight[k] : 1.0, finish_, wire_);
      }
    }
    NodeLoops packed = *this;
    packed.leaf_ = wire_;
    packed.leaf_size_ = node_size_;
    packed.fold_some(left != nullptr ? offset(left, from * node_size_) : nullptr, here.at, here.weight, here.width,
                     offset(out, from * node_size_), count);
  }
}

void NodeLoops::join(const void* a, const void* b, void* out, int64_t n) const noexcept {
  NodeLoops of_nodes = *this;
  of_nodes.leaves_ = nodes_;
  of_nodes.leaf_size_ = node_size_;
  of_nodes.weighted_ = false;
  of_nodes.fold_some(a, &b, nullptr, 1, out, n);
}

/// Weighted sums are always divided; a division by a power of two gives the bits of the multiplication.
Finish finish_of(const ReduceRule& rule, bool weighted) noexcept {
  Finish finish = finish_by(rule, rule.by_weight ? rule.weight_sum : rule.divisor);
  if (!weighted) return finish;
  finish.divide = true;
  if (rule.op != DDP_AVERAGE) finish.divisor = 1.0;
  return finish;
}

void finish_node(const ReduceRule& rule, const Finish& finish, const void* node, void* out, int64_t n) noexcept {
  if (rule.is_wired()) return finish_wired(rule, node, out, n);
  const int64_t node_size = dtype_size(rule.carry_dtype());
  const int64_t size = dtype_size(rule.dtype);
  const FinishFn write = kernels().finish[rule.dtype][finish.divide];
  const int64_t whole = n / kGroup * kGroup;
  if (whole > 0) write(node, out, whole, finish);
  if (n == whole) return;
  Group group;
  group.fill(offset(node, whole * node_size), n - whole, node_size);
  write(group.bytes, group.bytes, kGroup, finish);
  group.empty(offset(out, whole * size), n - whole, size);
}

void copy_to_rest(void* const* out, int32_t out_count, int64_t from, int64_t bytes) noexcept {
  for (int32_t k = 1; k < out_count; ++k)
    if (out[k] != out[0]) std::memcpy(offset(out[k], from), offset(out[0], from), static_cast<size_t>(bytes));
}

}  // namespace ddp::cpu
