// SPDX-License-Identifier: Apache-2.0
// Which parameters of a model something is for, by index. A value; it may be made before the last parameter is registered.
// Tested by unit/core/parameter_set_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddp {

class ParameterSet {
 public:
  /// All, also those that are registered later.
  ParameterSet() = default;
  /// These alone.
  [[nodiscard]] static ParameterSet of(const std::vector<int32_t>& indices) {
    ParameterSet made;
    made.later_ = false;
    for (const int32_t index : indices) made.set(index, true);
    return made;
  }
  /// All but the ones for which `is_taken` says so, of the first `count`.
  template <class IsTaken>
  [[nodiscard]] static ParameterSet all_but(int32_t count, const IsTaken& is_taken) {
    ParameterSet made;
    for (int32_t index = 0; index < count; ++index)
      if (is_taken(index)) made.set(index, false);
    return made;
  }

  [[nodiscard]] bool has(int32_t index) const noexcept {
    const auto at = static_cast<size_t>(index);
    return at < listed_.size() ? listed_[at] : later_;
  }

 private:
  void set(int32_t index, bool has) {
    const auto at = static_cast<size_t>(index);
    if (listed_.size() <= at) listed_.resize(at + 1, later_);
    listed_[at] = has;
  }

  std::vector<bool> listed_;  // of the first parameters
  bool later_ = true;         // of all others
};

}  // namespace ddp
