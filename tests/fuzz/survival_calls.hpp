// SPDX-License-Identifier: Apache-2.0
// Calls about recovery and virtual ranks, for capi_calls_fuzz.cpp: in a group that cannot recover, with any arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp/experimental.h"

namespace ddp_fuzz {

constexpr uint8_t kSurvivalCalls = 6;

/// `next()`: the next byte of the program. `note(status)`: checks it.
template <class Next, class Note>
void call_survival(ddp_group *group, uint8_t which, Next next, Note note) {
  ddp_virtual_ranks parts{};
  parts.struct_size = sizeof parts;
  switch (which) {
    case 0: {
      ddp_recover_options options;
      note(ddp_recover_options_init(&options, sizeof options));
      options.min_ranks = next() - 2;
      options.allow_half = next() % 3;
      options.wait_ms = static_cast<int64_t>(next()) - 1;
      options.cool_down_ms = static_cast<int64_t>(next()) - 1;
      ddp_recovery recovery{};
      recovery.struct_size = next() % 2 == 0 ? static_cast<int64_t>(sizeof recovery) : next();
      return note(ddp_group_recover(group, &options, &recovery));
    }
    case 1: {
      int32_t ranks[2] = {}, count = 0;
      constexpr ddp_status (*kGet[])(const ddp_group *, int32_t *, int32_t, int32_t *) = {
          ddp_group_get_failed, ddp_group_get_gone, ddp_group_get_joined, ddp_group_get_renumbered};
      return note(kGet[next() % 4](group, next() % 2 == 0 ? ranks : nullptr, next() % 4 - 1, &count));
    }
    case 2: {
      ddp_rank_progress progress{};
      progress.struct_size = sizeof progress;
      return note(ddp_group_get_progress(group, next() % 4 - 1, &progress));
    }
    case 3: return note(ddp_group_get_virtual_ranks(group, &parts));
    case 4: {
      int64_t key = 0;
      return note(ddp_virtual_rank_key(next(), next() - 1, next() - 1, &key));
    }
    default: {
      note(ddp_group_get_virtual_ranks(group, &parts));
      const int64_t count = next() % 5;
      std::vector<double> values(static_cast<size_t>(parts.count) * 4, 0.5);
      return note(ddp_group_reduce_part_metrics(group, values.data(), count, static_cast<ddp_reduce>(next() % 5)));
    }
  }
}

}  // namespace ddp_fuzz
