// SPDX-License-Identifier: Apache-2.0
// The parameters that are exchanged together: their global values and momentum, and the model, on a group of its own, whose
// gradients are their movements.
// Threads: one at a time.
// Tested by conformance/outer_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/outer.h"
#include "model/model.hpp"
#include "os/memory.hpp"
#include "parts/hooks/hook.hpp"

namespace ddp::outer {

// How movements are sent: unchanged, as BF16, or block-wise quantised and gathered (quantise.hpp), where each rank adds the
// rounding error to its next movement. A hook of the model that exchanges them. Cost with n ranks: a rank sends n - 1 times
// its own packed array, 1/4 (8 bits) or 1/8 of the movement; that is less than a sum of F32 up to 8 or 16 ranks. Threads:
// the hook's; Exactness is set while no pass is open.
/// Shared with the hook, equal on all ranks: the next passes send movements and what was lost so far as they are.
struct Exactness {
  bool is_exact = false;
};

[[nodiscard]] parts::Hook movement_hook(const ddp_outer_options& options, std::shared_ptr<const Exactness> exactness);

class Fragment {
 public:
  /// Of these parameters of `table`, by index. Memory for all; the global values are those of the table, momentum is 0.
  Fragment(const Parameters& table, std::vector<int32_t> parameters);

  /// Make exchanges possible among the ranks of `group`, of which rank 0's global values go to all. Collective.
  void connect(std::shared_ptr<group::Group> group, const ddp_outer_options& options,
               const std::shared_ptr<const Exactness>& exactness);
  /// The exchanges are over, what is under way is dropped. Momentum and global values stay.
  void disconnect() noexcept;
  [[nodiscard]] bool is_connected() const noexcept { return exchange_ != nullptr; }

  /// Send global - own values.
  void begin();
  /// Wait for the mean of all ranks' movements, make the outer step, and let the parameters follow.
  void end(const ddp_outer_options& options, double keep);

  /// The global values become the parameters' as they are; momentum 0.
  void begin_anew() noexcept;

  [[nodiscard]] const std::vector<int32_t>& parameters() const noexcept { return parameters_; }
  /// In F32, F64 for F64 parameters.
  [[nodiscard]] Tensor global(size_t index) const noexcept;
  [[nodiscard]] Tensor momentum(size_t index) const noexcept;
  /// Bytes sent so far.
  [[nodiscard]] int64_t sent_bytes() const;

 private:
  [[nodiscard]] const Parameter& parameter(size_t index) const noexcept { return table_.parameter(parameters_[index]); }
  void follow(size_t index, std::byte* scratch, double keep) const noexcept;

  const Parameters& table_;
  std::vector<int32_t> parameters_;
  std::vector<int64_t> offsets_;  // bytes, of each parameter in the two arrays
  os::LargeArray global_, momentum_;
  std::unique_ptr<model::Model> exchange_;
  int64_t sent_before_ = 0;  // by exchanges of earlier groups
};

}  // namespace ddp::outer
