// SPDX-License-Identifier: Apache-2.0
// The first gather of a group that is being made. A rank's contribution to it is known before the ranks meet, so it is sent
// with the join and needs no extra round trip.
#pragma once

#include <string>

namespace ddp::bootstrap {

struct Opening {
  std::string what, blob;
};

}  // namespace ddp::bootstrap
