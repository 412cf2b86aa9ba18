// SPDX-License-Identifier: Apache-2.0
// What the passes of a model have come to: what the gradients in memory are, which parameters were used, and what may not go
// on.
// Threads: one at a time.
// Tested by conformance/pass_test.cpp and capi/backward_test.c.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddp::pass {

class Results {
 public:
  enum class Gradients {
    kOwn,          // the program's: no pass has ended, or they were set to zero after one that left nothing to use
    kFinal,        // those of a pass that reduced, or of a LOCAL one, or reduced by the program itself
    kAccumulated,  // not reduced yet
    kVoid          // of a pass that failed or was abandoned
  };

  explicit Results(size_t parameters) : of_(parameters) {}

  [[nodiscard]] Gradients gradients() const noexcept { return gradients_; }
  /// Passes that ended well with final gradients, and gradients that the program has reduced itself.
  [[nodiscard]] int64_t final_passes() const noexcept { return final_passes_; }
  /// Is this gradient complete on each rank in its own slice only?
  [[nodiscard]] bool is_sliced(int32_t index) const noexcept { return gradients_ == Gradients::kFinal && at(index).sliced; }
  /// Is it a sum, which the step divides?
  [[nodiscard]] bool is_sum(int32_t index) const noexcept { return gradients_ == Gradients::kFinal && at(index).sum; }
  /// Is one of them?
  [[nodiscard]] bool are_sums() const noexcept {
    return gradients_ == Gradients::kFinal && std::any_of(of_.begin(), of_.end(), [](const Of& each) { return each.sum; });
  }
  /// Has a pass with final gradients ended well?
  [[nodiscard]] bool has_reduced() const noexcept { return final_passes_ > 0; }
  /// By any rank in the last one; all are before the first.
  [[nodiscard]] bool was_used(int32_t index) const noexcept { return at(index).used; }
  /// A pass was captured into a graph: a launch of it makes gradients that are not recorded here.
  [[nodiscard]] bool was_captured() const noexcept { return was_captured_; }
  /// There was a LOCAL pass: ranks may hold different values and states.
  [[nodiscard]] bool went_alone() const noexcept { return went_alone_; }
  /// A void pass has updated a part of parameters and optimizer for good (no undo).
  [[nodiscard]] bool is_torn() const noexcept { return torn_; }

  /// A pass has ended with gradients that are not final.
  void set(Gradients gradients) noexcept { gradients_ = gradients; }
  /// A pass has succeeded; use() returns which gradients were used, and leave() what they are, unless they are whole means.
  void finish() noexcept {
    gradients_ = Gradients::kFinal;
    ++final_passes_;
  }
  /// All gradients are whole means, until leave() says otherwise of one.
  void leave_whole() noexcept {
    for (Of& each : of_) each.sliced = each.sum = false;
  }
  /// What a bucket with a part of this gradient has left: the mean in each rank's own slice only, a sum.
  void leave(int32_t index, bool sliced, bool sum) noexcept {
    Of& of = of_[static_cast<size_t>(index)];
    of.sliced = of.sliced || sliced;
    of.sum = of.sum || sum;
  }
  /// The program has reduced all of them itself.
  void take_reduced() noexcept {
    std::fill(of_.begin(), of_.end(), Of{});
    finish();
  }
  /// The step has divided it.
  void divide(int32_t index) noexcept { of_[static_cast<size_t>(index)].sum = false; }
  void use(int32_t index, bool used) noexcept { of_[static_cast<size_t>(index)].used = used; }
  void capture() noexcept { was_captured_ = true; }
  void go_alone() noexcept { went_alone_ = true; }
  void tear() noexcept { torn_ = true; }
  [[nodiscard]] bool take_torn() noexcept { return std::exchange(torn_, false); }
  /// The earlier passes are those of another group; the contents of the gradients are invalid.
  void go_on_from(int64_t final_passes) noexcept {
    final_passes_ = final_passes;
    if (final_passes > 0) gradients_ = Gradients::kVoid;
  }
  /// The gradients were set to zero: nothing that was accumulated is left.
  void forget_gradients() noexcept {
    if (gradients_ != Gradients::kFinal) gradients_ = Gradients::kOwn;
  }

 private:
  /// A gradient behind the last pass.
  struct Of {
    bool used = true;
    bool sliced = false;
    bool sum = false;
  };
  [[nodiscard]] const Of& at(int32_t index) const noexcept { return of_[static_cast<size_t>(index)]; }

  std::vector<Of> of_;  // by parameter
  Gradients gradients_ = Gradients::kOwn;
  int64_t final_passes_ = 0;
  bool was_captured_ = false;
  bool torn_ = false;
  bool went_alone_ = false;
};

}  // namespace ddp::pass
