// Zeroed memory beside the parameters: for each parameter the same few arrays, as long as the part of it that this rank owns, of the type
// that its arithmetic uses, and on the GPU on which it lies.
// Host pages that nothing was written to cost no memory, so a frozen parameter's arrays are free there. Addresses never change.
// Tested by unit/update/store_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/owned_span.hpp"
#include "base/tensor.hpp"
#include "param/table.hpp"
#include "update/beside.hpp"

namespace ddp {

class Store {
 public:
  explicit Store(size_t arrays) : arrays_(arrays) {}

  /// Arrays for the parameters that have none yet; `owned(index)` is the part of a parameter that they are for. Throws OUT_OF_MEMORY that
  /// names the parameter.
  template <class Owned>
  void allocate(const Table& table, Owned&& owned) {
    for (auto index = static_cast<int32_t>(first_.size()); index < table.parameter_count(); ++index) add(table.parameter(index), owned(index));
  }
  void allocate(const Table& table) {
    allocate(table, [&](int32_t index) { return OwnedSpan{0, 0, table.parameter(index).value.count}; });
  }
  [[nodiscard]] size_t arrays() const noexcept { return arrays_; }
  /// Arrays of this parameter: none if no element of it is owned.
  [[nodiscard]] size_t arrays_of(int32_t index) const noexcept { return has_[static_cast<size_t>(index)] ? arrays_ : 0; }
  /// Where the array starts: at the first element that is owned.
  [[nodiscard]] std::byte* data(int32_t index, size_t array) const noexcept;
  /// Element `element` of the parameter in the array.
  [[nodiscard]] std::byte* at(const Parameter& parameter, int32_t index, size_t array, int64_t element) const noexcept;
  /// The array as a tensor of the parameter's shape; of a part, `data` is that of the part.
  [[nodiscard]] Tensor tensor(const Table& table, int32_t index, size_t array) const noexcept;

 private:
  void add(const Parameter& parameter, const OwnedSpan& owned);

  size_t arrays_;
  std::vector<int64_t> first_;  // of each parameter's part
  std::vector<bool> has_;       // is it more than nothing?
  std::vector<Beside> blocks_;  // arrays_ for each parameter
};

}  // namespace ddp
