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
#include "checkpoint/match.hpp"
#include "checkpoint/source.hpp"
#include "checkpoint/state.hpp"

namespace ddp::checkpoint {

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
