// SPDX-License-Identifier: Apache-2.0
#include "optim/undo.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cpu/stream.hpp"
#include "device/cpu/update_kernels.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t kApart = 256;  // bytes between the beginnings of parts

}  // namespace

template <class Fn>
void Undo::each(const Parameter& parameter, const Saved& saved, int64_t at, int64_t count, const Fn& fn) const {
  const int64_t first = saved.owned.first + at;
  const int32_t index = saved.owned.piece;
  std::byte* place = saved.bytes;
  const auto one = [&](std::byte* live, ddp_dtype dtype) {
    fn(live, place + at * dtype_size(dtype), dtype, count);
    place += saved.owned.count * dtype_size(dtype);
  };
  const ddp_dtype dtype = parameter.value.dtype;
  for (const OptimizerState* store : stores_)
    for (size_t array = 0; !store->has_two_sides() && array < store->arrays_of(index); ++array)
      one(store->at(parameter, index, array, first), cpu::moment_dtype(dtype));
  one(parameter.value.data + first * dtype_size(dtype), dtype);
}

int64_t Undo::bytes_of(const Parameters& table, const OwnedSpan& part) const noexcept {
  size_t arrays = 0;
  for (const OptimizerState* store : stores_) arrays += store->has_two_sides() ? 0 : store->arrays_of(part.piece);
  const ddp_dtype dtype = table.parameter(part.piece).value.dtype;
  const int64_t element = dtype_size(dtype) + static_cast<int64_t>(arrays) * dtype_size(cpu::moment_dtype(dtype));
  return (part.count * element + kApart - 1) / kApart * kApart;
}

void Undo::add(const Parameters& table, const std::vector<OwnedSpan>& parts, const std::vector<size_t>& first) {
  const auto is_in_host = [&](const OwnedSpan& part) {
    return device::of(table.parameter(part.piece).value).is_immediate();
  };
  int64_t in_host = 0, elsewhere = 0;
  for (const OwnedSpan& part : parts) (is_in_host(part) ? in_host : elsewhere) += bytes_of(table, part);
  constexpr const char* kWhat = "what takes back a step";
  device::Memory host_memory(device::host(), in_host, kWhat);
  device::Memory gpu_memory(device::of(table), elsewhere, kWhat);
  std::byte* next_in_host = host_memory.data();
  std::byte* next_elsewhere = gpu_memory.data();
  saved_.reserve(saved_.size() + parts.size());
  noted_.reserve(saved_.size() + parts.size());
  first_.reserve(first_.size() + first.size());
  memory_.reserve(memory_.size() + 2);
  memory_.push_back(std::move(host_memory));  // from here nothing throws
  memory_.push_back(std::move(gpu_memory));
  for (const OwnedSpan& part : parts) {
    std::byte*& next = is_in_host(part) ? next_in_host : next_elsewhere;
    saved_.push_back(Saved{part, next, 0, 0, side_of(part.piece)});
    next += bytes_of(table, part);
  }
  first_.insert(first_.end(), first.begin(), first.end());
}

/// All arrays of a parameter are on one side.
int Undo::side_of(int32_t index) const noexcept {
  int side = 0;
  for (const OptimizerState* store : stores_) side = std::max(side, store->side(index));
  return side;
}

void Undo::go_to_side(const Saved& saved, int side) noexcept {
  for (OptimizerState* store : stores_)
    if (store->has_two_sides() && saved.count > 0) store->go_to_side(saved.owned.piece, side);
}

void Undo::count() noexcept {
  for (const Saved& saved : saved_) go_to_side(saved, 1 - saved.side);
}

void Undo::clear() noexcept {
  for (Saved& saved : saved_) {
    saved.count = saved.flushed = 0;
    saved.side = side_of(saved.owned.piece);
  }
  noted_.clear();
  goes_back_ = false;
}

bool Undo::copy_now(const Parameter& parameter, const Saved& saved, int64_t at, int64_t count, Way way) const noexcept {
  const device::Device& home = device::of(parameter.value);
  if (!home.is_immediate()) return false;
  each(parameter, saved, at, count, [&](std::byte* live, std::byte* place, ddp_dtype dtype, int64_t n) {
    const int64_t bytes = n * dtype_size(dtype);
    if (way == Way::kSave)  // seldom read: it only has to leave the caches
      cpu::stream_copy(place, live, bytes);
    else
      home.copy(live, place, bytes, nullptr);
  });
  if (way == Way::kSave) cpu::stream_fence();
  return true;
}

void Undo::save(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept {
  for (size_t k = first_[static_cast<size_t>(index)]; k < saved_.size() && saved_[k].owned.piece == index; ++k) {
    Saved& saved = saved_[k];
    const int64_t begin = std::max(first, saved.owned.first);
    const int64_t end = std::min(first + count, saved.owned.first + saved.owned.count);
    if (begin >= end) continue;
    const int64_t at = begin - saved.owned.first;
    if (!copy_now(parameter, saved, at, end - begin, Way::kSave) && saved.flushed == saved.count) noted_.push_back(k);
    saved.count = at + end - begin;
  }
}

void Undo::start_block(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept {
  save(parameter, index, first, count);
  for (OptimizerState* store : stores_) store->start_block(parameter, index, first, count);
}

void Undo::end_block() noexcept {
  for (OptimizerState* store : stores_) store->end_block();
}

void Undo::restore(const Parameters& table) noexcept {
  for (Saved& saved : saved_) {
    goes_back_ = goes_back_ || saved.flushed > 0;
    static_cast<void>(copy_now(table.parameter(saved.owned.piece), saved, 0, saved.count, Way::kRestore));
    saved.count = 0;
  }
  noted_.clear();
}

void Undo::add_spans(const Parameters& table, const Saved& saved, int64_t at, int64_t count) {
  const Parameter& parameter = table.parameter(saved.owned.piece);
  const device::Device& home = device::of(parameter.value);
  each(parameter, saved, at, count, [&](std::byte* live, std::byte* place, ddp_dtype dtype, int64_t n) {
    goes_back_ ? spans_.add(home, dtype, dtype, place, live, n) : spans_.add(home, dtype, dtype, live, place, n);
  });
}

void Undo::flush(const Parameters& table, void* stream) {
  spans_.clear();
  if (goes_back_) {
    for (Saved& saved : saved_) add_spans(table, saved, 0, std::exchange(saved.flushed, 0));
  } else {
    for (const size_t k : noted_) {
      Saved& saved = saved_[k];
      add_spans(table, saved, saved.flushed, saved.count - saved.flushed);
      saved.flushed = saved.count;
    }
  }
  noted_.clear();
  spans_.apply({device::Operation::Kind::kCopy, 1, goes_back_ ? "taking back a step" : "saving what a step changes"},
               {stream});
  goes_back_ = false;
}

}  // namespace ddp::optim
