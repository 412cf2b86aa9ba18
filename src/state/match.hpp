// Is this file a checkpoint of these tensors? Compares the whole list before anything is read into place.
// Tested by unit/state/match_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/layout.hpp"
#include "state/manifest.hpp"

namespace ddp::state {

/// Where each item is in the file: positions in layout.header.tensors, in the order of `items`.
/// Throws MISMATCH naming missing, unexpected and different tensors (the first few of each). Tensors of the optimizer or of averages
/// are expected only where `items` has that part.
[[nodiscard]] std::vector<size_t> match(const std::vector<Item>& items, const Layout& layout, bool with_optimizer, bool with_ema);

}  // namespace ddp::state
