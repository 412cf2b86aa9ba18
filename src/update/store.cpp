#include "update/store.hpp"

#include <string>

#include "update/kernels.hpp"

namespace ddp {

void Store::allocate(const Table& table) {
  const std::vector<Parameter>& parameters = table.parameters();
  blocks_.reserve(arrays_ * parameters.size());
  while (blocks_.size() < arrays_ * parameters.size()) {
    const Parameter& parameter = parameters[blocks_.size() / arrays_];
    const auto bytes = static_cast<size_t>(parameter.value.count) * static_cast<size_t>(dtype_size(moment_dtype(parameter.value.dtype)));
    const std::string what = "state for the parameter \"" + parameter.name + "\"";
    blocks_.emplace_back(bytes, what.c_str());
  }
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
