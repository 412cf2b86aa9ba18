// Zeroed memory beside the parameters: for each parameter the same few arrays, of its shape and of the type that its arithmetic uses.
// Pages that nothing was written to cost no memory, so a frozen parameter's arrays are free. Addresses never change.
// Tested by unit/update/store_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.hpp"
#include "base/tensor.hpp"
#include "param/table.hpp"

namespace ddp {

class Store {
 public:
  explicit Store(size_t arrays) : arrays_(arrays) {}

  /// Arrays for the parameters that have none yet. Throws OUT_OF_MEMORY that names the parameter.
  void allocate(const Table& table);
  [[nodiscard]] size_t arrays() const noexcept { return arrays_; }
  [[nodiscard]] std::byte* data(int32_t index, size_t array) const noexcept;
  /// The array as a tensor of the parameter's shape.
  [[nodiscard]] Tensor tensor(const Table& table, int32_t index, size_t array) const noexcept;

 private:
  size_t arrays_;
  std::vector<LargeArray> blocks_;  // arrays_ for each parameter
};

}  // namespace ddp
