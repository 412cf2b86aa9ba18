// SPDX-License-Identifier: Apache-2.0
// Is this file a checkpoint of these tensors? Compares the whole list before anything is read into place.
// Tested by unit/checkpoint/match_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"

namespace ddp::checkpoint {

/// A tensor that one side has alone, or both in different ways.
struct Difference {
  std::string name;  // as in the file
  std::string text;  // with what is known of it
};

struct Match {
  static constexpr size_t kAbsent = SIZE_MAX;
  std::vector<size_t> places;  // of each item: its position in layout.header.tensors, or kAbsent
  std::vector<Difference> missing, unexpected, different;
  std::string advice;  // what the names say about the cause; for the end of an error
};

/// Tensors of the optimizer or of averages are expected only where they were asked for.
[[nodiscard]] Match compare(const std::vector<Item>& items, const Layout& layout, const std::vector<Part>& parts);

/// Throws MISMATCH naming missing, unexpected and different tensors (the first few of each). `partial`: only for different
/// ones, and if the file has none of the model's tensors.
void refuse_differences(const Match& match, const std::vector<Item>& items, bool partial);

}  // namespace ddp::checkpoint
