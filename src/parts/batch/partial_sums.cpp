// SPDX-License-Identifier: Apache-2.0
#include "parts/batch/partial_sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/attempt.hpp"
#include "device/cpu/arrays.hpp"
#include "group/consensus.hpp"

namespace ddp::parts {
namespace {

constexpr int64_t kBlock = 8192;  // elements that are worked on at a time, so that they stay in cache
constexpr int kMostLevels = 31;

int32_t levels_for(int32_t parts) noexcept { return static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(parts - 1))); }

int64_t rounded(int64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

}  // namespace

/// What is added when a part ends: unfinished sums from the largest to the smallest, and the part itself.
struct PartialSums::Nodes {
  std::array<int, kMostLevels> levels{};
  std::array<cpu::SumPart, kMostLevels + 1> parts{};
  int32_t count = 0;  // of parts; the last one is the part that ends
  int64_t total = 0;  // leaves
  bool counts = false;
};

PartialSums::PartialSums(group::Group& group, const Parameters& table, const Plan& plan, std::vector<cpu::ReduceRule> rules,
                         int32_t parts)
    : group_(group),
      table_(table),
      plan_(plan),
      rules_(std::move(rules)),
      levels_(static_cast<size_t>(levels_for(parts))),
      counts_(levels_.size()),
      widened_(plan.size()) {
  group::all_or_none(group_, "memory for partial sums", [&] { allocate(table); });
}

void PartialSums::Free::operator()(std::byte* memory) const noexcept {
  static_cast<void>(try_to([&] { group->memory().free(memory); }));
}

void PartialSums::allocate(const Parameters& table) {
  int64_t bytes = 0;
  for (size_t b = 0; b < plan_.size(); ++b) {
    offsets_.push_back(bytes);
    bytes += rounded(plan_[b].count * dtype_size(rules_[b].carry_dtype()));
  }
  for (os::LargeArray& each : levels_) each = os::LargeArray(static_cast<size_t>(bytes), "partial sums");
  for (size_t b = 0; b < plan_.size(); ++b)
    if (is_widened(b) && plan_[b].count > 0)
      widened_[b] = {
          static_cast<std::byte*>(group_.memory().alloc_beside(table.parameter(plan_[b].pieces.front().parameter).value,
                                                               plan_[b].count * dtype_size(rules_[b].carry_dtype()))),
          Free{&group_}};
}

std::byte* PartialSums::widened(size_t bucket, size_t piece) const noexcept {
  return widened_[bucket].get() + plan_[bucket].pieces[piece].offset * dtype_size(rules_[bucket].carry_dtype());
}

std::byte* PartialSums::gradient(size_t bucket, const PlannedPiece& piece) const noexcept {
  return table_.parameter(piece.parameter).grad.data + piece.first * dtype_size(rules_[bucket].dtype);
}

/// `carries`: the levels that are added, as bits. A level that does not count is left out, as a leaf that does not.
PartialSums::Nodes PartialSums::nodes_of(int32_t carries, double weight) const noexcept {
  Nodes nodes;
  const auto add = [&](int64_t width, bool is_leaf, bool counts) {
    cpu::SumPart& part = nodes.parts[static_cast<size_t>(nodes.count++)];
    part.lo = nodes.total;
    part.hi = nodes.total += width;
    part.is_leaf = is_leaf;
    part.weight = is_leaf ? weight : 1;
    part.data = counts ? this : nullptr;  // where it is depends on the bucket
    nodes.counts = nodes.counts || counts;
  };
  for (int bit = kMostLevels - 1; bit >= 0; --bit) {
    if ((carries >> bit & 1) == 0) continue;
    nodes.levels[static_cast<size_t>(nodes.count)] = bit;
    add(int64_t{1} << bit, false, counts_[static_cast<size_t>(bit)]);
  }
  add(1, true, weight > 0);
  return nodes;
}

/// Elements [from, from + count) of a piece; `to` may be the leaf itself.
void PartialSums::add(const Nodes& nodes, size_t bucket, const PlannedPiece& piece, int64_t from, int64_t count,
                      void* to) const noexcept {
  const cpu::ReduceRule& rule = rules_[bucket];
  std::array<cpu::SumPart, kMostLevels + 1> parts = nodes.parts;
  for (int32_t n = 0; n < nodes.count; ++n) {
    cpu::SumPart& part = parts[static_cast<size_t>(n)];
    if (part.data == nullptr) continue;
    part.data = part.is_leaf ? gradient(bucket, piece) + from * dtype_size(rule.dtype)
                             : level(nodes.levels[static_cast<size_t>(n)], bucket) +
                                   (piece.offset + from) * dtype_size(rule.carry_dtype());
  }
  cpu::combine_subtree(rule, parts.data(), nodes.count, nodes.total, to, count);
}

void PartialSums::close(int32_t index, double weight) noexcept {
  const int bit = std::countr_one(static_cast<uint32_t>(index));
  const Nodes nodes = nodes_of((1 << bit) - 1, weight);
  counts_[static_cast<size_t>(bit)] = nodes.counts;
  for (size_t b = 0; b < plan_.size(); ++b) {
    const int64_t size = dtype_size(rules_[b].dtype), carry_size = dtype_size(rules_[b].carry_dtype());
    for (const PlannedPiece& piece : plan_[b].pieces)
      for (int64_t at = 0; at < piece.count; at += kBlock) {
        const int64_t count = std::min(kBlock, piece.count - at);
        if (nodes.counts) add(nodes, b, piece, at, count, level(bit, b) + (piece.offset + at) * carry_size);
        std::memset(gradient(b, piece) + at * size, 0, static_cast<size_t>(count * size));
      }
  }
}

bool PartialSums::finish(size_t bucket, int32_t index, double weight) noexcept {
  const Nodes nodes = nodes_of(index, weight);
  if (!nodes.counts) return false;
  const cpu::ReduceRule& rule = rules_[bucket];
  const int64_t size = dtype_size(rule.dtype), carry_size = dtype_size(rule.carry_dtype());
  alignas(64) std::array<std::byte, kBlock * sizeof(uint16_t)> terms;  // of a wire type
  const std::vector<PlannedPiece>& pieces = plan_[bucket].pieces;
  for (size_t p = 0; p < pieces.size(); ++p)
    for (int64_t at = 0; at < pieces[p].count; at += kBlock) {
      const int64_t count = std::min(kBlock, pieces[p].count - at);
      std::byte* const grad = gradient(bucket, pieces[p]) + at * size;
      if (rule.is_wired()) {
        add(nodes, bucket, pieces[p], at, count, terms.data());
        cpu::convert(rule.wire, terms.data(), rule.dtype, grad, count);
      } else {
        add(nodes, bucket, pieces[p], at, count, is_widened(bucket) ? widened(bucket, p) + at * carry_size : grad);
      }
    }
  return true;
}

void PartialSums::narrow(size_t bucket, size_t piece) const noexcept {
  const PlannedPiece& planned = plan_[bucket].pieces[piece];
  cpu::convert(rules_[bucket].carry_dtype(), widened(bucket, piece), rules_[bucket].dtype, gradient(bucket, planned),
               planned.count);
}

}  // namespace ddp::parts
