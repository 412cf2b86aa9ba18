#include "update/store.hpp"

#include "base/error.hpp"
#include "update/kernels.hpp"

namespace ddp {
namespace {

constexpr size_t kAlignment = 64;

std::byte* aligned(std::byte* memory) noexcept {
  const auto past = reinterpret_cast<uintptr_t>(memory) % kAlignment;
  return past == 0 ? memory : memory + (kAlignment - past);
}

}  // namespace

void Store::allocate(const Table& table) {
  const std::vector<Parameter>& parameters = table.parameters();
  blocks_.reserve(arrays_ * parameters.size());
  while (blocks_.size() < arrays_ * parameters.size()) {
    const Parameter& parameter = parameters[blocks_.size() / arrays_];
    const auto bytes = static_cast<size_t>(parameter.value.count) * static_cast<size_t>(dtype_size(moment_dtype(parameter.value.dtype)));
    // calloc, because it need not write: fresh pages are zero already.
    Block block{std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(std::calloc(bytes + kAlignment, 1))), nullptr};
    if (block.memory == nullptr)
      throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%zu bytes of state for the parameter \"%s\" could not be allocated", bytes,
                       parameter.name.c_str());
    block.data = aligned(block.memory.get());
    blocks_.push_back(std::move(block));
  }
}

std::byte* Store::data(int32_t index, size_t array) const noexcept {
  return blocks_[static_cast<size_t>(index) * arrays_ + array].data;
}

Tensor Store::tensor(const Table& table, int32_t index, size_t array) const noexcept {
  Tensor tensor = table.parameter(index).value;
  tensor.dtype = moment_dtype(tensor.dtype);
  tensor.data = data(index, array);
  return tensor;
}

}  // namespace ddp
