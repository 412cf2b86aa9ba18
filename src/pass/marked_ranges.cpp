#include "pass/marked_ranges.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "pass/pass.hpp"

namespace ddp::pass {

bool MarkedRanges::add(int64_t first, int64_t count) {
  const int64_t end = first + count;
  const auto next =
      std::lower_bound(ranges_.begin(), ranges_.end(), first, [](const Range& each, int64_t at) { return each.first < at; });
  const bool has_next = next != ranges_.end(), has_previous = next != ranges_.begin();
  if ((has_next && next->first < end) || (has_previous && (next - 1)->end > first)) return false;
  const bool joins_next = has_next && next->first == end, joins_previous = has_previous && (next - 1)->end == first;
  if (joins_next && joins_previous) {
    (next - 1)->end = next->end;
    ranges_.erase(next);
  } else if (joins_next) {
    next->first = first;
  } else if (joins_previous) {
    (next - 1)->end = end;
  } else {
    ranges_.insert(next, Range{first, end});
  }
  marked_ += count;
  return true;
}

bool MarkedRanges::covers(int64_t first, int64_t end) const noexcept {
  const auto behind =
      std::upper_bound(ranges_.begin(), ranges_.end(), first, [](int64_t at, const Range& each) { return at < each.first; });
  return behind != ranges_.begin() && (behind - 1)->end >= end;
}

std::string MarkedRanges::missing(int64_t elements, int64_t unit) const {
  std::string text;
  int64_t at = 0, gaps = 0;
  const auto gap = [&](int64_t end) {
    if (at < end && gaps++ == 0) text = std::to_string(at / unit) + " to " + std::to_string(end / unit - 1);
  };
  for (const Range& range : ranges_) {
    gap(range.first);
    at = range.end;
  }
  gap(elements);
  if (gaps > 1) text += " and " + std::to_string(gaps - 1) + (gaps > 2 ? " more ranges" : " more range");
  return text;
}

/// Elements of the table for one of the program's: 2 of a complex gradient.
int64_t Pass::unit_of(int32_t index) const noexcept {
  const Parameter& parameter = table_.parameter(index);
  return parameter.declared == parameter.grad.dtype ? 1 : 2;
}

void Pass::mark_range_ready(int32_t index, int64_t first, int64_t count, void* stream) {
  constexpr const char* kFunction = "ddp_model_mark_range_ready";
  if (!is_open())
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: no backward pass is open; call ddp_model_begin_backward first",
                     kFunction);
  const Parameter& parameter = table_.parameter(index);
  const int64_t unit = unit_of(index), elements = parameter.grad.count / unit;
  if (first < 0 || count < 1 || first > elements || count > elements - first)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: first is %lld and count %lld, but parameter \"%s\" has %lld elements",
                     kFunction, static_cast<long long>(first), static_cast<long long>(count), parameter.name.c_str(),
                     static_cast<long long>(elements));
  const auto at = static_cast<size_t>(index);
  bool complete = false;
  {
    const std::lock_guard lock(ranging_);
    uint32_t before = marks_[at].load(std::memory_order_relaxed);
    const bool is_first = before >> 2 != epoch_;
    if (is_first ? !marks_[at].compare_exchange_strong(before, mark_value(Mark::kPartly))
                 : before != mark_value(Mark::kPartly))
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "%s: parameter %d (\"%s\") is marked as a whole already in this pass, or all of its ranges are",
                       kFunction, index, parameter.name.c_str());
    MarkedRanges& ranges = ranges_[at];
    if (is_first) ranges.clear();
    if (!ranges.add(first * unit, count * unit))
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "%s: some of the elements %lld to %lld of parameter %d (\"%s\") are marked already in this pass",
                       kFunction, static_cast<long long>(first), static_cast<long long>(first + count - 1), index,
                       parameter.name.c_str());
    if (is_first) contributes_[at] |= kNow;  // a bucket that may go by then reads it
    if (ranges.marked() == parameter.grad.count) marks_[at].store(mark_value(Mark::kReady), std::memory_order_release);
    complete = count_ranges(index, first * unit, (first + count) * unit, stream);
  }
  if (complete) start_ready_buckets();
  if (mode_ == DDP_PASS_REDUCE) poke();
}

bool Pass::count_ranges(int32_t index, int64_t first, int64_t end, void* stream) {
  const auto at = static_cast<size_t>(index);
  bool complete = false;
  for (const PiecePlace& place : places_[at]) {
    const auto bucket = static_cast<size_t>(place.bucket);
    const PlannedPiece& piece = plan_[bucket].pieces[static_cast<size_t>(place.piece)];
    const int64_t piece_end = piece.first + piece.count;
    if (piece.first >= end || piece_end <= first) continue;
    add_stream(bucket, stream);
    if (ranges_[at].covers(piece.first, piece_end)) complete = count_mark(bucket) || complete;
  }
  return complete;
}

bool Pass::is_partly_marked(int32_t index) const noexcept {
  return marks_[static_cast<size_t>(index)].load(std::memory_order_acquire) == mark_value(Mark::kPartly);
}

std::string Pass::missing_of(int32_t index) const {
  const Parameter& parameter = table_.parameter(index);
  if (!is_partly_marked(index)) return parameter.name;
  const std::lock_guard lock(ranging_);
  return parameter.name + " (elements " + ranges_[static_cast<size_t>(index)].missing(parameter.grad.count, unit_of(index)) +
         ")";
}

}  // namespace ddp::pass
