// SPDX-License-Identifier: Apache-2.0
#include "socket/reduce_input.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddp::socket {
namespace {

size_t bytes(int64_t elements, int64_t size) noexcept { return static_cast<size_t>(elements * size); }

int64_t total(const std::vector<collective::BucketSpec::Piece>& pieces) noexcept {
  int64_t sum = 0;
  for (const auto& piece : pieces) sum += piece.count;
  return sum;
}

}  // namespace

PieceInput::PieceInput(const cpu::ReduceRule& rule, const std::vector<collective::BucketSpec::Piece>& pieces)
    : ReduceInput(rule, total(pieces), 1), size_(dtype_size(rule.dtype)), travel_size_(dtype_size(rule.travel_dtype())) {
  int64_t first = 0;
  for (const auto& piece : pieces) {
    runs_.push_back(Run{piece.data, first, piece.count, static_cast<int32_t>(runs_.size()), true});
    first += piece.count;
  }
}

void PieceInput::learn(const collective::BucketHeader& header) noexcept {
  for (size_t r = 0; r < runs_.size(); ++r)
    runs_[r].used = header.used.empty() || (header.used[r / 64] >> (r % 64) & 1) != 0;
}

void PieceInput::set_address(int32_t piece, std::byte* data) noexcept { runs_[static_cast<size_t>(piece)].data = data; }

size_t PieceInput::run_at(int64_t element) const noexcept {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), element, [](int64_t value, const Run& run) { return value < run.first; });
  return static_cast<size_t>(after - runs_.begin()) - 1;  // the last that starts at or before it: not an empty one
}

template <class Fn>
void PieceInput::each(Span span, const Fn& fn) const noexcept {
  if (span.count == 0) return;
  int64_t done = 0;
  for (size_t r = run_at(span.first); done < span.count; ++r) {
    const Run& run = runs_[r];
    const int64_t offset = span.first + done - run.first;
    const int64_t count = std::min(run.count - offset, span.count - done);
    if (count > 0) fn(run, run.data + offset * size_, done, count);
    done += count;
  }
}

void* PieceInput::landing(Span span) noexcept {
  if (span.count == 0 || is_packed()) return nullptr;
  size_t r = run_at(span.first);
  std::byte* const start = runs_[r].data + (span.first - runs_[r].first) * size_;
  const int64_t end = span.first + span.count;
  for (; runs_[r].first < end; ++r) {  // pieces that touch are as good as one
    const Run& run = runs_[r];
    if (run.count == 0) continue;
    if (!run.used || run.data != start + (run.first - span.first) * size_) return nullptr;
    if (run.first + run.count >= end) break;
  }
  return start;
}

const void* PieceInput::node(size_t, Span span, void* scratch) noexcept {
  if (void* where = landing(span)) return where;
  each(span, [&](const Run&, const std::byte* mine, int64_t offset, int64_t count) {
    std::byte* const to = static_cast<std::byte*>(scratch) + offset * travel_size_;
    if (is_packed())
      cpu::pack(rule(), mine, weight_of(0), to, count);
    else
      std::memcpy(to, mine, bytes(count, size_));
  });
  return scratch;
}

void PieceInput::deliver(const void* result, Span span) noexcept {
  each(span, [&](const Run& run, std::byte* mine, int64_t offset, int64_t count) {
    const std::byte* const from = static_cast<const std::byte*>(result) + offset * travel_size_;
    if (!run.used) return;
    if (is_packed())
      cpu::unpack(rule(), from, mine, count);
    else
      std::memcpy(mine, from, bytes(count, size_));
  });
}

SliceInput::SliceInput(const cpu::ReduceRule& rule, const std::vector<collective::BucketSpec::Piece>& pieces,
                       const std::vector<OwnedSpan>& own, collective::SliceWork work)
    : PieceInput(rule, pieces), own_(own), work_(std::move(work)) {}

void SliceInput::work() noexcept {
  if (!work_) return;
  for (const OwnedSpan& span : own_)
    if (is_used(span.piece)) work_.on_block(span.piece, span.first, span.count);
}

const void* SliceInput::values(Span span, void* scratch) noexcept {
  each(span, [&](const Run& run, const std::byte*, int64_t offset, int64_t count) {
    if (run.used && work_) work_.on_block(run.piece, span.first + offset - run.first, count);
  });
  return node(0, span, scratch);
}

PartInput::PartInput(const cpu::ReduceRule& rule, const std::byte* input, std::byte* output, int64_t part, int32_t size,
                     int32_t position)
    : ReduceInput(rule, part * size, 1),
      input_(input),
      output_(output),
      part_(part),
      begin_(position * part),
      size_(dtype_size(rule.dtype)) {}

const void* PartInput::node(size_t, Span span, void*) noexcept { return input_ + span.first * size_; }

void* PartInput::landing(Span span) noexcept {
  const bool inside = span.first >= begin_ && span.first + span.count <= begin_ + part_ && span.count > 0;
  return inside ? output_ + (span.first - begin_) * size_ : nullptr;
}

void PartInput::deliver(const void* result, Span span) noexcept {
  const int64_t from = std::max(span.first, begin_);
  const int64_t until = std::min(span.first + span.count, begin_ + part_);
  if (from >= until) return;
  std::memcpy(output_ + (from - begin_) * size_, static_cast<const std::byte*>(result) + (from - span.first) * size_,
              bytes(until - from, size_));
}

FlatOwnership flat_slices(const Ownership& ownership, const std::vector<collective::BucketSpec::Piece>& pieces) {
  std::vector<int64_t> first{0};
  for (const collective::BucketSpec::Piece& piece : pieces) first.push_back(first.back() + piece.count);
  FlatOwnership owned;
  for (int32_t rank = 0; rank < ownership.ranks(); ++rank) {
    owned.emplace_back();
    for (const OwnedSpan& span : ownership.slice(rank)) {
      const int64_t begin = first[static_cast<size_t>(span.piece)] + span.first;
      std::vector<Span>& own = owned.back();
      if (!own.empty() && own.back().first + own.back().count == begin)
        own.back().count += span.count;
      else if (span.count > 0)
        own.push_back(Span{begin, span.count});
    }
  }
  return owned;
}

}  // namespace ddp::socket
