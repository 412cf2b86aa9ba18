// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer_state.hpp"

#include <cstring>
#include <utility>

#include "device/cpu/stream.hpp"
#include "device/cpu/update_kernels.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t kLargestElement = 8;  // bytes

constexpr int64_t in_units(int64_t bytes, int64_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

}  // namespace

StateSpace::Place StateSpace::add(int64_t bytes, bool is_in_host) noexcept {
  constexpr int64_t kLine = 64;
  int64_t& end = is_in_host ? in_host : elsewhere;
  const int64_t unit = is_in_host ? kLine : bytes < kLeastApart ? kVector : kApart;
  const Place place{in_units(end, unit), is_in_host};
  end = place.offset + in_units(bytes, is_in_host ? kLine : kVector);
  return place;
}

OptimizerState::Block OptimizerState::make(const Parameters& table, const std::vector<Parts>& parts) const {
  const auto begin = static_cast<int32_t>(parts_.size());
  const auto parameter = [&](size_t i) -> const Parameter& { return table.parameter(begin + static_cast<int32_t>(i)); };
  const auto bytes = [&](size_t i) { return count_of(parts[i]) * dtype_size(cpu::moment_dtype(parameter(i).value.dtype)); };
  StateSpace space;
  std::vector<StateSpace::Place> places;
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t array = 0; array < arrays_ * sides_; ++array)
      places.push_back(space.add(bytes(i), device::of(parameter(i).value).is_immediate()));
  Block block;
  constexpr const char* kWhat = "state beside the parameters";
  if (space.in_host > 0) block.in_host = os::LargeArray(static_cast<size_t>(space.in_host), kWhat);
  if (space.elsewhere > 0) block.elsewhere = device::Memory(device::of(table), space.elsewhere, kWhat);
  std::byte* const in_host = block.in_host.data();
  for (const StateSpace::Place& place : places)
    block.places.push_back((place.is_in_host ? in_host : block.elsewhere.data()) + place.offset);
  return block;
}

void OptimizerState::add(const Parameters& table, std::vector<Parts> parts) {
  Block block = make(table, parts);
  places_.reserve(places_.size() + block.places.size());
  parts_.reserve(parts_.size() + parts.size());
  side_.reserve(side_.size() + parts.size());
  if (sides_ == 2) room_.resize(arrays_ * kSmallBlock * kLargestElement);
  blocks_.push_back(std::move(block));  // from here nothing throws
  const std::vector<std::byte*>& places = blocks_.back().places;
  places_.insert(places_.end(), places.begin(), places.end());
  for (Parts& each : parts) parts_.push_back(std::move(each));
  side_.resize(parts_.size());
}

std::byte* OptimizerState::at(const Parameter& parameter, int32_t index, size_t array, int64_t element,
                              int side) const noexcept {
  return places_[(static_cast<size_t>(index) * sides_ + static_cast<size_t>(side)) * arrays_ + array] +
         place_of(parts_[static_cast<size_t>(index)], element) * dtype_size(cpu::moment_dtype(parameter.value.dtype));
}

std::byte* OptimizerState::at(const Parameter& parameter, int32_t index, size_t array, int64_t element) const noexcept {
  if (changing_.index != index) return at(parameter, index, array, element, side(index));
  if (!changing_.is_small) return at(parameter, index, array, element, 1 - side(index));
  return room(array) + (element - changing_.first) * dtype_size(cpu::moment_dtype(parameter.value.dtype));
}

std::byte* OptimizerState::room(size_t array) const noexcept {
  return const_cast<std::byte*>(room_.data()) + static_cast<int64_t>(array) * kSmallBlock * kLargestElement;
}

std::byte* OptimizerState::data(int32_t index, size_t array) const noexcept {
  return places_[(static_cast<size_t>(index) * sides_ + static_cast<size_t>(side(index))) * arrays_ + array];
}

void OptimizerState::start_block(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept {
  if (sides_ == 1 || arrays_of(index) == 0) return;
  const int64_t bytes = count * dtype_size(cpu::moment_dtype(parameter.value.dtype));
  changing_ = Changing{&parameter, index, first, bytes, count <= kSmallBlock && !moves_in_rule_};
  for (size_t array = 0; array < arrays_ && !moves_in_rule_; ++array)
    std::memcpy(at(parameter, index, array, first), at(parameter, index, array, first, side(index)),
                static_cast<size_t>(bytes));
}

void OptimizerState::end_block() noexcept {
  const Changing changed = std::exchange(changing_, Changing{});
  if (changed.index < 0) return;
  for (size_t array = 0; array < arrays_ && changed.is_small; ++array)
    cpu::stream_copy(at(*changed.parameter, changed.index, array, changed.first, 1 - side(changed.index)), room(array),
                     changed.bytes);
  cpu::stream_fence();
}

Tensor OptimizerState::tensor(const Parameters& table, int32_t index, size_t array) const noexcept {
  Tensor tensor = table.parameter(index).value;
  tensor.dtype = cpu::moment_dtype(tensor.dtype);
  tensor.data = data(index, array);
  return tensor;
}

}  // namespace ddp::optim
