// SPDX-License-Identifier: Apache-2.0
#include "optim/part_sender.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cpu/update_kernels.hpp"
#include "group/consensus.hpp"
#include "optim/masters.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;
constexpr int kLooks = 1'000;  // at memory whose owner was stopped, and resumes while it is read

}  // namespace

PartSender::PartSender(const PartLayout& layout, group::Group& group, const Ownership& ownership, const Target& target,
                       int64_t version)
    : layout_(layout),
      group_(group),
      ownership_(ownership),
      target_(target),
      version_(version),
      chunk_(static_cast<size_t>(kChunkBytes)) {}

std::vector<PartSender::Segment> PartSender::segments_of(const Ownership::Slice& part) const {
  std::vector<Segment> segments;
  for (const OwnedSpan& span : part) {
    const Parameter& parameter = layout_.table.parameter(span.piece);
    const ddp_dtype moment = cpu::moment_dtype(parameter.value.dtype);
    size_t array = 0;
    const auto add = [&](ddp_dtype dtype) {
      segments.push_back(Segment{span.piece, array++, span.first, span.count, dtype, 0});
    };
    while (array < layout_.arrays) add(moment);
    if (layout_.has_masters && Masters::has(parameter)) add(DDP_F32);
    add(parameter.value.dtype);
  }
  return segments;
}

std::byte* PartSender::values(const Segment& segment) const noexcept {
  return layout_.table.parameter(segment.index).value.data + segment.first * dtype_size(segment.dtype);
}

bool PartSender::is_values(const Segment& segment) const noexcept {
  const bool has_master = layout_.has_masters && Masters::has(layout_.table.parameter(segment.index));
  return segment.array == layout_.arrays + (has_master ? 1 : 0);
}

/// Bytes of values before it, if the spans are contiguous.
int64_t PartSender::place_among(const Ownership::Slice& part, const Segment& segment) const noexcept {
  int64_t before = 0;
  for (const OwnedSpan& span : part) {
    const int64_t element = dtype_size(layout_.table.parameter(span.piece).value.dtype);
    const bool is_here =
        span.piece == segment.index && segment.first >= span.first && segment.first < span.first + span.count;
    if (is_here) return before + (segment.first - span.first) * element;
    before += span.count * element;
  }
  return before;
}

/// Live, with what is saved over it if `undo` is not NULL.
void PartSender::read(const Ownership::Slice& part, const PartSource& from, const Undo* undo,
                      const Segment& segment) noexcept {
  const Parameter& parameter = layout_.table.parameter(segment.index);
  const bool is_state = segment.array < layout_.arrays;
  const OptimizerState& store = is_state ? *from.store : *from.masters;
  const std::byte* live = nullptr;
  if (is_values(segment))
    live = from.values != nullptr ? from.values + place_among(part, segment) : values(segment);
  else
    live = store.at(parameter, segment.index, is_state ? segment.array : 0, segment.first,
                    from.shared == nullptr ? store.side(segment.index)
                                           : from.shared->side_read(segment.index, segment.first, undo != nullptr));
  std::byte* const to = chunk_.data() + segment.at;
  std::memcpy(to, live, static_cast<size_t>(segment.count * dtype_size(segment.dtype)));
  if (undo != nullptr) undo->lay_over(parameter, segment.index, segment.array, segment.first, segment.count, to);
}

void PartSender::fill(const Ownership::Slice& part, const PartSource& from) {
  for (int look = 0; look < kLooks; ++look) {
    if (from.shared != nullptr) static_cast<void>(from.shared->read_ledger());
    const bool goes_back = from.shared != nullptr && Ledger::get(from.shared->ledger()->step) == version_ + 1;
    for (const Segment& segment : in_chunk_) read(part, from, goes_back ? from.shared : nullptr, segment);
    if (from.shared == nullptr || !from.shared->read_ledger()) return;
  }
  throw Error(DDP_ERROR_ABORTED, "ddp_group_recover: a rank that was left behind does not stop to change its state");
}

void PartSender::take(const Segment& segment) {
  const std::byte* const from = chunk_.data() + segment.at;
  const int64_t element = dtype_size(segment.dtype);
  if (is_values(segment)) {
    std::memcpy(values(segment), from, static_cast<size_t>(segment.count * element));
    return;
  }
  const Parameter& parameter = layout_.table.parameter(segment.index);
  for (const OwnedSpan& own : ownership_.parts(group_.rank(), segment.index)) {
    const int64_t begin = std::max(own.first, segment.first);
    const int64_t end = std::min(own.first + own.count, segment.first + segment.count);
    if (begin >= end) continue;
    std::byte* const to = segment.array < layout_.arrays ? target_.store.at(parameter, segment.index, segment.array, begin)
                                                         : target_.masters.at(parameter, segment.index, 0, begin);
    std::memcpy(to, from + (begin - segment.first) * element, static_cast<size_t>((end - begin) * element));
  }
}

void PartSender::send_chunk(const Ownership::Slice& part, const PartSource& from, int32_t giver, int64_t bytes) {
  if (bytes == 0) return;
  if (group_.rank() == giver) group::or_break(group_, group::Part::kOwn, [&] { fill(part, from); });
  group_.broadcast(flat_tensor(chunk_.data(), DDP_U8, bytes), giver);
  hasher_.add(chunk_.data(), static_cast<size_t>(bytes));
  for (const Segment& segment : in_chunk_) take(segment);
  in_chunk_.clear();
}

void PartSender::send(const Ownership::Slice& part, const PartSource& from, int32_t giver) {
  int64_t bytes = 0;
  for (Segment rest : segments_of(part)) {
    const int64_t element = dtype_size(rest.dtype);
    while (rest.count > 0) {
      const int64_t now = std::min(rest.count, (kChunkBytes - bytes) / element);
      if (now == 0) {
        send_chunk(part, from, giver, std::exchange(bytes, 0));
        continue;
      }
      in_chunk_.push_back(Segment{rest.index, rest.array, rest.first, now, rest.dtype, bytes});
      bytes += now * element;
      rest.first += now;
      rest.count -= now;
    }
  }
  send_chunk(part, from, giver, bytes);
}

}  // namespace ddp::optim
