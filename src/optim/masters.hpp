// F32 copies of parameters that are F16 or BF16 (master weights): a rule works on the copy, whose small changes do not
// vanish in rounding, and the parameter is the copy rounded. Where a parameter is no longer its copy rounded, its owner has
// changed it (a load, an average swapped in), and the copy starts anew from it.
// Tested by unit/optim/masters_test.cpp.
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
    copies_.allocate(table, [&](int32_t index) { return has(table.parameter(index)) ? owned(index) : OwnedSpan{}; });
  }
  [[nodiscard]] const OptimizerState& store() const noexcept { return copies_; }
  /// The copies of these parameters, if there are any yet, begin anew from the values. Waits for the GPU.
  void begin_anew(const Parameters& table, const std::vector<bool>& which, const std::function<OwnedSpan(int32_t)>& owned);

  /// rule(value, gradient, count) on F32 arrays for the elements first to first + count, kBlock at a time.
  template <class Rule>  // of a parameter in host memory; on a GPU, kernels do this
  void update(const Parameter& parameter, int32_t index, int64_t first, int64_t count, Rule&& rule) {
    for (int64_t at = first; at < first + count; at += kBlock) {
      const int64_t n = first + count - at < kBlock ? first + count - at : kBlock;
      float* const copy = refreshed(parameter, index, at, n);
      alignas(64) float gradient[kBlock];
      widen_gradient(parameter, at, n, gradient);
      rule(copy, gradient, at, n);
      narrow(parameter, at, n, copy);
    }
  }
  /// The same for all elements at once; `gradient` has room for them.
  template <class Rule>
  void update_whole(const Parameter& parameter, int32_t index, float* gradient, Rule&& rule) {
    const int64_t count = parameter.value.count;
    for (int64_t at = 0; at < count; at += kBlock)
      static_cast<void>(refreshed(parameter, index, at, count - at < kBlock ? count - at : kBlock));
    float* const copy = reinterpret_cast<float*>(copies_.at(parameter, index, 0, 0));
    widen_gradient(parameter, 0, count, gradient);
    rule(copy, gradient, int64_t{0}, count);
    narrow(parameter, 0, count, copy);
  }

 private:
  static constexpr int64_t kBlock = 2048;
  [[nodiscard]] float* refreshed(const Parameter& parameter, int32_t index, int64_t at, int64_t count) const noexcept;
  static void widen_gradient(const Parameter& parameter, int64_t at, int64_t count, float* gradient) noexcept;
  static void narrow(const Parameter& parameter, int64_t at, int64_t count, const float* copy) noexcept;

  OptimizerState copies_{1};
};

}  // namespace ddp::optim
