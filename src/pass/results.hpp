// SPDX-License-Identifier: Apache-2.0
// What the passes of a model have come to: what the gradients in memory are, which parameters were used, and what may not go
// on.
// Threads: one at a time.
// Tested by conformance/pass_threads_test.cpp and capi/backward_test.c.
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

  explicit Results(size_t parameters) : used_(parameters, 1) {}

  [[nodiscard]] Gradients gradients() const noexcept { return gradients_; }
  /// Passes that ended well with final gradients, and gradients that the program has reduced itself.
  [[nodiscard]] int64_t final_passes() const noexcept { return final_passes_; }
  /// Each rank's gradients are complete in its own slice only.
  [[nodiscard]] bool are_sliced() const noexcept { return gradients_ == Gradients::kFinal && sliced_; }
  /// They are sums: the step divides them.
  [[nodiscard]] bool are_sums() const noexcept { return gradients_ == Gradients::kFinal && sums_; }
  /// Has a pass with final gradients ended well?
  [[nodiscard]] bool has_reduced() const noexcept { return final_passes_ > 0; }
  /// By any rank in the last one; all are before the first.
  [[nodiscard]] bool was_used(int32_t index) const noexcept { return used_[static_cast<size_t>(index)] != 0; }
  /// A pass was captured into a graph: a launch of it makes gradients that are not recorded here.
  [[nodiscard]] bool was_captured() const noexcept { return was_captured_; }
  /// There was a LOCAL pass: ranks may hold different values and states.
  [[nodiscard]] bool went_alone() const noexcept { return went_alone_; }
  /// A void pass has updated a part of parameters and optimizer for good (no undo).
  [[nodiscard]] bool is_torn() const noexcept { return torn_; }

  /// A pass has ended with gradients that are not final.
  void set(Gradients gradients) noexcept { gradients_ = gradients; }
  /// A pass has succeeded; use() returns which gradients were used. `sliced`: each rank has the mean in its own slice only.
  /// `sums`: gradients are sums instead of means.
  void finish(bool sliced, bool sums) noexcept {
    gradients_ = Gradients::kFinal;
    sliced_ = sliced;
    sums_ = sums;
    ++final_passes_;
  }
  /// The program has reduced all of them itself.
  void take_reduced() noexcept {
    std::fill(used_.begin(), used_.end(), uint8_t{1});
    finish(false, false);
  }
  /// The step has divided them.
  void divide() noexcept { sums_ = false; }
  void use(int32_t index, bool used) noexcept { used_[static_cast<size_t>(index)] = used ? 1 : 0; }
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
  std::vector<uint8_t> used_;
  Gradients gradients_ = Gradients::kOwn;
  int64_t final_passes_ = 0;
  bool sliced_ = false;
  bool sums_ = false;
  bool was_captured_ = false;
  bool torn_ = false;
  bool went_alone_ = false;
};

}  // namespace ddp::pass
