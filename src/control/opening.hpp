// SPDX-License-Identifier: Apache-2.0
// The first gather of a group that is being made. What a rank brings to it is known before the ranks meet, so it is said
// with the join and needs no round trip of its own.
#pragma once

#include <string>

namespace ddp::bootstrap {

struct Opening {
  std::string what, blob;
};

}  // namespace ddp::bootstrap
