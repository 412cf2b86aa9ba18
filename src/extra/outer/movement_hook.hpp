// SPDX-License-Identifier: Apache-2.0
// How movements are sent: unchanged, as BF16, or block-wise quantised and gathered (quantise.hpp), where each rank adds the
// rounding error to its next movement. A hook of the model that exchanges them. Cost with n ranks: a rank sends n - 1 times
// its own packed array, 1/4 (8 bits) or 1/8 of the movement; that is less than a sum of F32 up to 8 or 16 ranks. Threads:
// the hook's; Exactness is set while no pass is open. Tested by conformance/outer_test.cpp.
#pragma once

#include <cstdint>
#include <memory>

#include "ddp/outer.h"
#include "parts/hooks/hook.hpp"

namespace ddp::outer {

/// Shared with the hook, equal on all ranks: the next passes send movements and what was lost so far as they are.
struct Exactness {
  bool is_exact = false;
};

[[nodiscard]] parts::Hook movement_hook(const ddp_outer_options& options, std::shared_ptr<const Exactness> exactness);

}  // namespace ddp::outer
