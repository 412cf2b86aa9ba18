// SPDX-License-Identifier: Apache-2.0
// The first half of a load, on the rank that reads: does the whole file match its header, and does it fit the registered
// tensors? All refusals are made here, before any registered tensor is touched. Tested by conformance/state_test.cpp and
// conformance/load_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/source.hpp"
#include "checkpoint/state.hpp"

namespace ddp::checkpoint {

// Is this file a checkpoint of these tensors? Compares the whole list before anything is read into place.
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

/// The position of one tensor of the manifest in the file, and its expected hash.
struct Place {
  int64_t offset = 0;
  uint64_t hash = 0;
};

/// A file that matches its header and fits the model.
struct Opened {
  Layout layout;
  Match match;
  std::vector<Place> places;  // for each item that the file has
};

/// Throws IO or MISMATCH; the text begins after the source's name. `only_own`: what libddp did not write has no hashes and
/// is refused.
[[nodiscard]] Opened verify(Source& source, const Parts& parts, const Manifest& manifest, bool partial, bool only_own);

}  // namespace ddp::checkpoint
