// SPDX-License-Identifier: Apache-2.0
#include "pass/marks.hpp"

#include <algorithm>

#include "core/error.hpp"

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

void Marks::refuse_second(int32_t index) const {
  throw make_error(DDP_ERROR_INVALID_STATE,
                   "parameter %d (\"%s\") is marked twice in one pass; a parameter that is used several times is marked "
                   "on its last use",
                   index, table_.parameter(index).name.c_str())
      .with({.parameters = {index}});
}

void Marks::refuse_overlap(int32_t index, int32_t other) const {
  if (other == MemoryRanges::kAwaited)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "parameter %d (\"%s\") was added without a gradient and has none yet; call ddp_model_set_grad before "
                     "it is marked",
                     index, table_.parameter(index).name.c_str())
        .with({.parameters = {index}});
  throw make_error(
      DDP_ERROR_INVALID_ARGUMENT,
      "the gradients of the parameters \"%s\" and \"%s\" overlap in memory: ddp_model_set_grad gave both some of "
      "the same bytes; give each gradient of a pass memory of its own",
      table_.parameter(index).name.c_str(), table_.parameter(other).name.c_str())
      .with({.parameters = {std::min(index, other), std::max(index, other)}});
}

void Marks::check_range(int32_t index, int64_t first, int64_t count) const {
  const Parameter& parameter = table_.parameter(index);
  const int64_t elements = parameter.grad.count / parameter.reals_each();
  if (first < 0 || count < 1 || first > elements || count > elements - first)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_mark_range_ready: first is %lld and count %lld, but parameter \"%s\" has %lld elements",
                     static_cast<long long>(first), static_cast<long long>(count), parameter.name.c_str(),
                     static_cast<long long>(elements))
        .with({.parameters = {index}});
  require_own_memory(index);
}

const MarkedRanges& Marks::add_range(int32_t index, int64_t first, int64_t count) {
  const auto at = static_cast<size_t>(index);
  const Parameter& parameter = table_.parameter(index);
  const int64_t unit = parameter.reals_each();
  uint32_t before = marks_[at].load(std::memory_order_relaxed);
  const bool is_first = before >> 2 != epoch_;
  if (is_first ? !marks_[at].compare_exchange_strong(before, value_of(Mark::kPartly)) : before != value_of(Mark::kPartly))
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_mark_range_ready: parameter %d (\"%s\") is marked as a whole already in this pass, or all of "
        "its ranges are",
        index, parameter.name.c_str())
        .with({.parameters = {index}});
  MarkedRanges& ranges = ranges_[at];
  if (is_first) ranges.clear();
  if (!ranges.add(first * unit, count * unit))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_mark_range_ready: some of the elements %lld to %lld of parameter %d (\"%s\") are marked "
                     "already in this pass",
                     static_cast<long long>(first), static_cast<long long>(first + count - 1), index, parameter.name.c_str())
        .with({.parameters = {index}});
  if (is_first) contributes_[at] |= kNow;  // later a bucket that is under way may read it
  if (ranges.marked() == parameter.grad.count) marks_[at].store(value_of(Mark::kReady), std::memory_order_release);
  return ranges;
}

MissingGradients Marks::missing(bool partial_allowed) const {
  MissingGradients mine;
  for (int32_t index = 0; index < table_.parameter_count(); ++index)
    if (!table_.parameter(index).removed && (is_needed(index) || (!is_marked(index) && !partial_allowed))) {
      if (static_cast<size_t>(++mine.missing) <= kNamedGradients) mine.names.push_back(name_of_missing(index));
      if (mine.indices.size() < kListed) mine.indices.push_back(index);
    }
  return mine;
}

/// The parameter's name and, if it is marked in part, what is missing.
std::string Marks::name_of_missing(int32_t index) const {
  const Parameter& parameter = table_.parameter(index);
  if (table_.contested_by(index) == MemoryRanges::kAwaited)
    return parameter.name + " (which has no gradient yet: ddp_model_set_grad)";
  if (const int32_t other = table_.contested_by(index); other != MemoryRanges::kNobody)
    return parameter.name + " (whose gradient overlaps that of " + table_.parameter(other).name + ")";
  if (!is_partly_marked(index)) return parameter.name;
  const std::lock_guard lock(ranging_);
  const MarkedRanges& ranges = ranges_[static_cast<size_t>(index)];
  return parameter.name + " (elements " + ranges.missing(parameter.grad.count, parameter.reals_each()) + ")";
}

std::vector<int32_t> Marks::accumulated() const {
  std::vector<int32_t> indices;
  for (size_t index = 0; index < contributes_.size(); ++index)
    if ((contributes_[index] & kBefore) != 0) indices.push_back(static_cast<int32_t>(index));
  return indices;
}

void Marks::settle(bool keep) noexcept {
  for (uint8_t& each : contributes_) each = (keep ? each != 0 : (each & kBefore) != 0) ? kBefore : 0;
}

void Marks::forget() noexcept { std::fill(contributes_.begin(), contributes_.end(), 0); }

}  // namespace ddp::pass
