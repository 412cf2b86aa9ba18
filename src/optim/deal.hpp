// SPDX-License-Identifier: Apache-2.0
// The step from which the parts of a sharded optimizer's state are dealt out after a recovery, and which rank sends the part
// of each old rank. Pure: every rank decides the same from the data that all have exchanged. A deal is a division of the
// state over ranks, with a number. A rank that gets its part of a new deal keeps the old one until all have theirs, so after
// a death in between all still have one in common. Tested by unit/optim/deal_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "optim/ledger.hpp"

namespace ddp::optim {

/// What one rank has.
struct Holdings {
  struct Hand {  // of one deal
    int64_t number = 0;
    int32_t rank = 0;                // of this rank in it
    std::vector<Versions> versions;  // by rank in it: what this rank can give of that rank's part
  };
  bool is_fresh = true;  // it has made no step, and loaded nothing
  std::vector<Hand> hands;
};

[[nodiscard]] std::string write_holdings(const Holdings& holdings);
/// Throws INTERNAL for bytes that cannot be one.
[[nodiscard]] Holdings read_holdings(std::string_view bytes);

struct Deal {
  enum class Kind {
    kLost,   // no step can be put together
    kFresh,  // there is no state yet
    kParts
  };
  Kind kind = Kind::kLost;
  int64_t number = 0;           // of the deal whose parts are given
  int64_t version = 0;          // the step
  int32_t teller = 0;           // the first rank that has a part of it, and knows its division
  std::vector<int32_t> givers;  // by rank in that deal
};

/// `by_rank`: of those that have met. The newest step that can be put together, but none that some rank has not made.
[[nodiscard]] Deal find_deal(const std::vector<Holdings>& by_rank);

}  // namespace ddp::optim
