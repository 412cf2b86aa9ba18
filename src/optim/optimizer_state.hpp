// SPDX-License-Identifier: Apache-2.0
// Zeroed memory beside the parameters: for each parameter the same few arrays, as long as the parts of it that this rank
// owns (one behind the other), of the type that its arithmetic uses, and on the GPU on which it lies.
// In host memory the arrays of all parameters that come together are one array, so that those of small parameters lie on
// huge pages too.
// Pages that nothing was written to cost no memory, so a frozen parameter's arrays are free there. Addresses never change
// but for clear(). Tested by unit/optim/optimizer_state_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/owned_span.hpp"
#include "core/parameters.hpp"
#include "core/tensor.hpp"
#include "device/memory.hpp"
#include "optim/state_memory.hpp"
#include "os/memory.hpp"

namespace ddp::optim {

/// Where arrays come to lie. On a GPU large ones begin on 256 bytes, as its own allocations do; small ones on 16, which is
/// what a kernel loads at once, because a thousand of them would be mostly padding.
struct StateSpace {
  static constexpr int64_t kApart = 256;
  static constexpr int64_t kVector = 16;
  static constexpr int64_t kLeastApart = 4096;  // bytes of an array that is large

  struct Place {
    int64_t offset = 0;
    bool is_in_host = false;
  };
  [[nodiscard]] Place add(int64_t bytes, bool is_in_host) noexcept;
  int64_t in_host = 0;    // bytes
  int64_t elsewhere = 0;  // bytes
};

class OptimizerState {
 public:
  explicit OptimizerState(size_t arrays) : arrays_(arrays) {}

  /// Arrays in host memory that are allocated from now on lie there.
  void lie_in(StateMemory memory) { memory_ = std::move(memory); }

  /// Arrays for the parameters that have none yet; `owned(index)` are the parts of a parameter that they are for. Throws
  /// OUT_OF_MEMORY; then there are no new ones.
  template <class Owned>
  void allocate(const Parameters& table, Owned&& owned) {
    std::vector<Parts> parts;
    for (auto index = static_cast<int32_t>(parts_.size()); index < table.parameter_count(); ++index) {
      const OwnedParts each = owned(index);
      parts.emplace_back(each.begin(), each.end());
    }
    if (!parts.empty()) add(table, std::move(parts));
  }
  /// For whole parameters.
  void allocate(const Parameters& table) {
    OwnedSpan whole;
    allocate(table, [&](int32_t index) {
      whole = OwnedSpan{index, 0, table.parameter(index).value.count};
      return OwnedParts(&whole, 1);
    });
  }
  /// Arrays of other parts can be allocated.
  void clear() noexcept {
    parts_.clear();
    places_.clear();
    blocks_.clear();
  }
  [[nodiscard]] size_t arrays() const noexcept { return arrays_; }
  /// Arrays of this parameter: none if no element of it is owned, or none were made.
  [[nodiscard]] size_t arrays_of(int32_t index) const noexcept {
    return static_cast<size_t>(index) < parts_.size() && count_of(parts_[static_cast<size_t>(index)]) > 0 ? arrays_ : 0;
  }
  /// Where the array starts: at the first element that is owned.
  [[nodiscard]] std::byte* data(int32_t index, size_t array) const noexcept;
  /// Element `element` of the parameter, which is owned, in the array.
  [[nodiscard]] std::byte* at(const Parameter& parameter, int32_t index, size_t array, int64_t element) const noexcept;
  /// The array as a tensor of the parameter's shape; of a part, `data` is that of the part.
  [[nodiscard]] Tensor tensor(const Parameters& table, int32_t index, size_t array) const noexcept;

 private:
  using Parts = std::vector<OwnedSpan>;
  /// What one call of allocate made.
  struct Block {
    os::LargeArray in_host;
    std::shared_ptr<std::byte> shared;  // in its place
    device::Memory elsewhere;
    std::vector<std::byte*> places;  // arrays_ for each parameter
  };
  [[nodiscard]] Block make(const Parameters& table, const std::vector<Parts>& parts) const;
  void add(const Parameters& table, std::vector<Parts> parts);

  size_t arrays_;
  std::vector<Parts> parts_;        // of each parameter: what its arrays are for
  std::vector<std::byte*> places_;  // arrays_ for each parameter
  std::vector<Block> blocks_;
  StateMemory memory_;  // none: their own
};

}  // namespace ddp::optim
