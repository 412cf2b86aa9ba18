// SPDX-License-Identifier: Apache-2.0
// F32 copies of parameters that are F16 or BF16 (master weights): a rule works on the copy, whose small changes do not
// vanish in rounding, and the parameter is the copy rounded. Where a parameter is no longer its copy rounded, its owner has
// changed it (a load, an average swapped in), and the copy starts again from it. The code that runs a rule does both: loops
// in host memory (device/cpu/master_copies), kernels on a GPU. Tested by unit/optim/masters_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "optim/optimizer_state.hpp"

namespace ddp::optim {

class Masters {
 public:
  [[nodiscard]] static bool has(const Parameter& parameter) noexcept {
    return parameter.value.dtype == DDP_F16 || parameter.value.dtype == DDP_BF16;
  }

  template <class Owned>
  void allocate(const Parameters& table, Owned&& owned) {
    copies_.allocate(table, [&](int32_t index) { return has(table.parameter(index)) ? owned(index) : OwnedParts(); });
  }
  void keep_two_sides(bool two) noexcept { copies_.keep_two_sides(two); }
  void clear() noexcept { copies_.clear(); }
  [[nodiscard]] const OptimizerState& store() const noexcept { return copies_; }
  [[nodiscard]] OptimizerState& store() noexcept { return copies_; }
  /// The copies of these parameters, if there are any yet, begin anew from the values. Waits for the GPU.
  void begin_anew(const Parameters& table, const std::vector<bool>& which, const std::function<OwnedParts(int32_t)>& owned);

 private:
  OptimizerState copies_{1};
};

}  // namespace ddp::optim
