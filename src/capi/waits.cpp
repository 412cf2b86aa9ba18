// SPDX-License-Identifier: Apache-2.0
// ddp/waits.h.
#include "ddp/waits.h"

#include <algorithm>

#include "capi/tables.hpp"
#include "exchange/waits.hpp"
#include "group/channels.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_group_get_waits(const ddp_group* group, double* seconds, int32_t capacity, int32_t* out_count) {
  constexpr const char* kName = "ddp_group_get_waits";
  return guarded([&] {
    const auto object = group_of(group, kName);
    require(out_count, kName, "out_count");
    if (capacity < 0 || (capacity > 0 && seconds == nullptr))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: capacity is %d; it is the number of elements of seconds, or 0",
                       kName, capacity);
    const collective::Waits& waits = object->channels().waits();
    for (int32_t rank = 0; rank < std::min(capacity, waits.ranks()); ++rank)
      seconds[rank] = static_cast<double>(waits.waited_ns(rank)) * 1e-9;
    *out_count = waits.ranks();
  });
}
