// SPDX-License-Identifier: Apache-2.0
// Zeroed memory for the parameters: for each parameter the same few arrays, as long as the parts of it that this rank owns
// (contiguous), of the type that its arithmetic uses, and on its GPU. In host memory the arrays of all parameters that come
// together are one array, so that those of small parameters are on huge pages too. Pages that nothing was written to cost no
// memory, so a frozen parameter's arrays are free there. Addresses change only by clear(). Two sides (keep_two_sides), in
// host memory: each array is there twice. A block of a step is read from one side and written to the other one, so what was
// before the step stays without a copy of it; when the step counts, the sides change places. Tested by
// unit/optim/optimizer_state_test.cpp and unit/optim/masters_test.cpp.
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
#include "os/memory.hpp"

namespace ddp::optim {

/// The placement of arrays. On a GPU large ones begin on 256 bytes, as its own allocations do; small ones on 16, which is
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

  /// Arrays have two sides, or one. No effect once there are arrays.
  void keep_two_sides(bool two) noexcept {
    if (parts_.empty()) sides_ = two ? 2 : 1;
  }
  [[nodiscard]] bool has_two_sides() const noexcept { return sides_ == 2; }
  /// With two sides: what changes a block reads it on `side` and writes it on the other itself, so that nothing is copied
  /// before; at() is where it writes. No effect once there are arrays.
  void move_in_rule(bool moves) noexcept {
    if (parts_.empty()) moves_in_rule_ = moves;
  }
  /// Does the block that changes now move so?
  [[nodiscard]] bool is_moving() const noexcept { return moves_in_rule_ && changing_.index >= 0; }

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
    side_.clear();
    blocks_.clear();
  }
  [[nodiscard]] size_t arrays() const noexcept { return arrays_; }
  /// Arrays of this parameter: none if no element of it is owned, or none were made.
  [[nodiscard]] size_t arrays_of(int32_t index) const noexcept {
    return static_cast<size_t>(index) < parts_.size() && count_of(parts_[static_cast<size_t>(index)]) > 0 ? arrays_ : 0;
  }
  /// Where the array starts: at the first element that is owned.
  [[nodiscard]] std::byte* data(int32_t index, size_t array) const noexcept;
  /// Element `element` of the parameter, which is owned, in the array. Between start_block and end_block an element of that
  /// block, where it changes.
  [[nodiscard]] std::byte* at(const Parameter& parameter, int32_t index, size_t array, int64_t element) const noexcept;
  /// The same on a side, 0 or 1.
  [[nodiscard]] std::byte* at(const Parameter& parameter, int32_t index, size_t array, int64_t element,
                              int side) const noexcept;
  /// The array as a tensor of the parameter's shape; of a part, `data` is that of the part.
  [[nodiscard]] Tensor tensor(const Parameters& table, int32_t index, size_t array) const noexcept;

  /// On which side the arrays of a parameter are, and that they are there from now on.
  [[nodiscard]] int side(int32_t index) const noexcept {
    return static_cast<size_t>(index) < side_.size() ? side_[static_cast<size_t>(index)] : 0;
  }
  void go_to_side(int32_t index, int side) noexcept {
    if (arrays_of(index) > 0) side_[static_cast<size_t>(index)] = static_cast<int8_t>(side);
  }
  /// With two sides: the block can be changed, and has been changed. Contiguous elements; one at a time.
  void start_block(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept;
  void end_block() noexcept;
  /// Elements of a block that stays in the caches meanwhile.
  static constexpr int64_t kSmallBlock = 8192;

 private:
  using Parts = std::vector<OwnedSpan>;
  /// What one call of allocate made.
  struct Block {
    os::LargeArray in_host;
    device::Memory elsewhere;
    std::vector<std::byte*> places;  // for each parameter, for each side: arrays_
  };
  /// A block that changes, from one side to the other.
  struct Changing {
    const Parameter* parameter = nullptr;
    int32_t index = -1;  // none does
    int64_t first = 0;
    int64_t bytes = 0;      // of an array
    bool is_small = false;  // it changes in room_
  };
  [[nodiscard]] Block make(const Parameters& table, const std::vector<Parts>& parts) const;
  void add(const Parameters& table, std::vector<Parts> parts);
  [[nodiscard]] std::byte* room(size_t array) const noexcept;

  size_t arrays_;
  std::vector<Parts> parts_;  // of each parameter: what its arrays are for
  size_t sides_ = 1;
  bool moves_in_rule_ = false;
  std::vector<std::byte*> places_;  // for each parameter, for each side: arrays_
  std::vector<int8_t> side_;        // of each parameter
  Changing changing_;
  std::vector<std::byte> room_;  // with two sides: a small block of each array
  std::vector<Block> blocks_;
};

}  // namespace ddp::optim
