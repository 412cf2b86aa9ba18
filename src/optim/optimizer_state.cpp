#include "optim/optimizer_state.hpp"

#include <string>
#include <utility>

#include "device/cpu/update_kernels.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t in_lines(int64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

}  // namespace

OptimizerState::Block OptimizerState::make(const Parameters& table, const std::vector<Parts>& parts) const {
  const auto begin = static_cast<int32_t>(parts_.size());
  const auto parameter = [&](size_t i) -> const Parameter& { return table.parameter(begin + static_cast<int32_t>(i)); };
  const auto bytes = [&](size_t i) { return count_of(parts[i]) * dtype_size(cpu::moment_dtype(parameter(i).value.dtype)); };
  int64_t in_host = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    if (device::of(parameter(i).value).is_immediate()) in_host += static_cast<int64_t>(arrays_) * in_lines(bytes(i));
  Block block;
  if (in_host > 0) block.in_host = os::LargeArray(static_cast<size_t>(in_host), "state beside the parameters");
  std::byte* next = block.in_host.data();
  for (size_t i = 0; i < parts.size(); ++i)
    for (size_t array = 0; array < arrays_; ++array) {
      if (const device::Device& home = device::of(parameter(i).value); !home.is_immediate()) {
        const std::string what = "state for the parameter \"" + parameter(i).name + "\"";
        block.places.push_back(block.elsewhere.emplace_back(home, bytes(i), what.c_str()).data());
      } else {
        block.places.push_back(next);
        next += in_lines(bytes(i));
      }
    }
  return block;
}

void OptimizerState::add(const Parameters& table, std::vector<Parts> parts) {
  Block block = make(table, parts);
  places_.reserve(places_.size() + block.places.size());
  parts_.reserve(parts_.size() + parts.size());
  blocks_.push_back(std::move(block));  // from here nothing throws
  const std::vector<std::byte*>& places = blocks_.back().places;
  places_.insert(places_.end(), places.begin(), places.end());
  for (Parts& each : parts) parts_.push_back(std::move(each));
}

std::byte* OptimizerState::at(const Parameter& parameter, int32_t index, size_t array, int64_t element) const noexcept {
  return data(index, array) +
         place_of(parts_[static_cast<size_t>(index)], element) * dtype_size(cpu::moment_dtype(parameter.value.dtype));
}

std::byte* OptimizerState::data(int32_t index, size_t array) const noexcept {
  return places_[static_cast<size_t>(index) * arrays_ + array];
}

Tensor OptimizerState::tensor(const Parameters& table, int32_t index, size_t array) const noexcept {
  Tensor tensor = table.parameter(index).value;
  tensor.dtype = cpu::moment_dtype(tensor.dtype);
  tensor.data = data(index, array);
  return tensor;
}

}  // namespace ddp::optim
