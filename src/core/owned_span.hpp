// A part of one piece of a bucket (a parameter or its gradient): elements first to first + count. A rank's slice of a bucket
// is a list of them, in piece order, at most one for each piece (core/ownership.hpp).
#pragma once

#include <cstdint>

namespace ddp {

struct OwnedSpan {
  int32_t piece = 0;
  int64_t first = 0;  // element of the piece
  int64_t count = 0;
};

}  // namespace ddp
