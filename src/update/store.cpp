#include "update/store.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "update/kernels.hpp"

namespace ddp {

void Store::add(const Parameter& parameter, const OwnedSpan& owned) {
  const int64_t bytes = owned.count * dtype_size(moment_dtype(parameter.value.dtype));
  const std::string what = "state for the parameter \"" + parameter.name + "\"";
  std::vector<Beside> made;
  for (size_t array = 0; array < arrays_; ++array) made.emplace_back(parameter.value, bytes, what.c_str());
  blocks_.reserve(blocks_.size() + arrays_);
  first_.reserve(first_.size() + 1);
  has_.reserve(has_.size() + 1);
  std::move(made.begin(), made.end(), std::back_inserter(blocks_));  // from here nothing throws
  first_.push_back(owned.first);
  has_.push_back(owned.count > 0);
}

std::byte* Store::at(const Parameter& parameter, int32_t index, size_t array, int64_t element) const noexcept {
  return data(index, array) + (element - first_[static_cast<size_t>(index)]) * dtype_size(moment_dtype(parameter.value.dtype));
}

std::byte* Store::data(int32_t index, size_t array) const noexcept {
  return blocks_[static_cast<size_t>(index) * arrays_ + array].data();
}

Tensor Store::tensor(const Table& table, int32_t index, size_t array) const noexcept {
  Tensor tensor = table.parameter(index).value;
  tensor.dtype = moment_dtype(tensor.dtype);
  tensor.data = data(index, array);
  return tensor;
}

}  // namespace ddp
