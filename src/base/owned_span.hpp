// A part of one piece of a bucket (a parameter or its gradient): elements first to first + count. A rank's slice of a bucket is a list of them,
// in piece order, at most one for each piece. Who owns what is decided by bucket/slices.hpp; everybody else only follows.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp {

struct OwnedSpan {
  int32_t piece = 0;
  int64_t first = 0;  // element of the piece
  int64_t count = 0;
};

/// slices[rank]: together the slices of all ranks cover every element of the bucket once.
using Slices = std::vector<std::vector<OwnedSpan>>;

}  // namespace ddp
