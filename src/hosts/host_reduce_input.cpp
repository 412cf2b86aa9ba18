// SPDX-License-Identifier: Apache-2.0
#include "hosts/host_reduce_input.hpp"

#include <algorithm>
#include <cstring>

#include "shm/region.hpp"

namespace ddp::hierarchy {
namespace {

std::byte* shifted(void* base, int64_t elements, int64_t size) noexcept {
  return static_cast<std::byte*>(base) + elements * size;
}

int64_t total(const std::vector<HostArray::Piece>& pieces) noexcept {
  return pieces.empty() ? 0 : pieces.back().first + pieces.back().count;
}

}  // namespace

HostReduceInput::HostReduceInput(const cpu::ReduceRule& rule, HostArray array, const LeafMap& map,
                                 const std::vector<int32_t>& ranks)
    : socket::ReduceInput(rule, total(array.pieces), ranks.size()),
      array_(std::move(array)),
      size_(dtype_size(rule.dtype)),
      carry_size_(dtype_size(rule.carry_dtype())),
      travel_size_(dtype_size(rule.travel_dtype())),
      used_(array_.pieces.size(), true) {
  size_t widest = 1;
  for (const SumNode& node : map.subtrees_of(ranks)) {
    nodes_.emplace_back();
    for (int64_t leaf = node.lo; leaf < node.hi; ++leaf) {
      const auto found = std::find(ranks.begin(), ranks.end(), map.rank_at(leaf));
      nodes_.back().push_back(found == ranks.end() ? LeafMap::kHole : static_cast<int32_t>(found - ranks.begin()));
    }
    widest = std::max(widest, nodes_.back().size());
  }
  in_.resize(widest);
  weights_.resize(widest);
}

void HostReduceInput::set_owned(std::vector<OwnSpan> owned, bool to_owner) {
  owned_ = std::move(owned);
  to_owner_ = to_owner;
}

void HostReduceInput::learn(const collective::BucketHeader& header) noexcept {
  for (size_t p = 0; p < used_.size(); ++p) used_[p] = header.used.empty() || (header.used[p / 64] >> (p % 64) & 1) != 0;
}

template <class Fn>
void HostReduceInput::each(socket::Span span, const Fn& fn) const noexcept {
  if (span.count == 0) return;
  const int64_t from = span.first;
  const auto after = std::upper_bound(array_.pieces.begin(), array_.pieces.end(), from,
                                      [](int64_t value, const HostArray::Piece& piece) { return value < piece.first; });
  int64_t done = 0;
  for (auto p = static_cast<size_t>(after - array_.pieces.begin()) - 1; done < span.count; ++p) {
    const int64_t element = from + done - array_.pieces[p].first;
    const int64_t count = std::min(array_.pieces[p].count - element, span.count - done);
    if (count > 0) fn(p, element, done, count);
    done += count;
  }
}

void HostReduceInput::populate(socket::Span span) const noexcept {
  each(span, [&](size_t piece, int64_t element, int64_t, int64_t count) {
    for (int32_t rank = 0; rank < array_.ranks; ++rank) shm::populate(at(piece, rank, element), count * size_);
  });
}

const void* HostReduceInput::node(size_t index, socket::Span span, void* scratch) noexcept {
  const std::vector<int32_t>& leaves = nodes_[index];
  if (leaves.size() == 1) return leaf(leaves.front(), span, scratch);
  form(leaves, span, scratch);
  return scratch;
}

// One rank's elements as they are sent.
const void* HostReduceInput::leaf(int32_t rank, socket::Span span, void* scratch) noexcept {
  const void* whole = nullptr;
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    const std::byte* mine = at(piece, rank, element);
    if (!is_packed() && count == span.count)
      whole = mine;
    else if (is_packed())
      cpu::pack(rule(), mine, weight_of(static_cast<size_t>(rank)), shifted(scratch, done, travel_size_), count);
    else
      std::memcpy(shifted(scratch, done, size_), mine, static_cast<size_t>(count * size_));
  });
  return whole != nullptr ? whole : scratch;
}

void HostReduceInput::form(const std::vector<int32_t>& leaves, socket::Span span, void* scratch) noexcept {
  bool counts = false, weighted = false;
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    weights_[leaf] = leaves[leaf] == LeafMap::kHole ? 0.0 : weight_of(static_cast<size_t>(leaves[leaf]));
    counts = counts || weights_[leaf] > 0;
    weighted = weighted || (weights_[leaf] > 0 && weights_[leaf] != 1.0);
  }
  if (!counts) return;  // no rank reads it
  const auto number = static_cast<int32_t>(leaves.size());
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf)
      in_[leaf] = weights_[leaf] > 0 ? at(piece, leaves[leaf], element) : nullptr;
    cpu::reduce_subtree(rule(), in_.data(), number, shifted(scratch, done, carry_size_), count,
                        weighted ? weights_.data() : nullptr);
  });
}

// A span never has parts of two owners.
int32_t HostReduceInput::owner_of(socket::Span span) const noexcept {
  const auto after = std::upper_bound(owned_.begin(), owned_.end(), span.first,
                                      [](int64_t first, const OwnSpan& own) { return first < own.span.first; });
  return std::prev(after)->local;
}

const void* HostReduceInput::values(socket::Span span, void* scratch) noexcept {
  return leaf(owner_of(span), span, scratch);
}

// A host with several ranks needs the result in several places.
void* HostReduceInput::landing(socket::Span span) noexcept {
  void* found = nullptr;
  each(span, [&](size_t piece, int64_t element, int64_t, int64_t count) {
    if (array_.ranks == 1 && !is_packed() && used_[piece] && count == span.count) found = at(piece, 0, element);
  });
  return found;
}

void HostReduceInput::deliver(const void* result, socket::Span span) noexcept {
  if (span.count == 0) return;
  const int32_t first = to_owner_ ? owner_of(span) : 0;
  const int32_t last = to_owner_ ? first + 1 : array_.ranks;
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    if (!used_[piece]) return;
    const void* from = static_cast<const std::byte*>(result) + done * travel_size_;
    for (int32_t rank = first; rank < last; ++rank) {
      std::byte* const to = at(piece, rank, element);
      if (is_packed() && rank == first)
        cpu::unpack(rule(), from, to, count);
      else if (to != from)  // data that is in place may be in transfer to another host
        std::memcpy(to, is_packed() ? at(piece, first, element) : from, static_cast<size_t>(count * size_));
    }
  });
}

}  // namespace ddp::hierarchy
