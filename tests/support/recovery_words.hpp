// SPDX-License-Identifier: Apache-2.0
// A group's reports about its ranks before and after a recovery, compared with what the ranks know of each other.
#pragma once

#include "ddp/experimental.h"
#include "support/check.hpp"

namespace ddp::test {

using GetRanks = ddp_status (*)(const ddp_group*, int32_t*, int32_t, int32_t*);

inline std::vector<int32_t> ranks_of(const ddp_group* group, GetRanks get) {
  int32_t count = -1, again = -1;
  if (get(group, nullptr, 0, &count) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, ddp_last_error());
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  if (get(group, ranks.data(), count, &again) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, ddp_last_error());
  expect_equal(again, count, "as many as before");
  return ranks;
}

/// `before`, `now`: numbers of the test's own for its ranks, by rank. Gives how many have left.
inline size_t check_who_is_there(const ddp_group* group, const std::vector<int64_t>& before,
                                 const std::vector<int64_t>& now) {
  std::vector<int32_t> renumbered, gone, joined;
  for (const int64_t id : before) {
    const auto found = std::find(now.begin(), now.end(), id);
    if (found == now.end()) gone.push_back(static_cast<int32_t>(renumbered.size()));
    renumbered.push_back(found == now.end() ? -1 : static_cast<int32_t>(found - now.begin()));
  }
  for (size_t rank = 0; rank < now.size(); ++rank)
    if (std::find(before.begin(), before.end(), now[rank]) == before.end()) joined.push_back(static_cast<int32_t>(rank));
  expect(ranks_of(group, ddp_group_get_renumbered) == renumbered, "what the ranks of before are now");
  expect(ranks_of(group, ddp_group_get_gone) == gone, "who is gone");
  expect(ranks_of(group, ddp_group_get_joined) == joined, "who has joined");
  return gone.size();
}

/// In a group of which a call has failed on this rank: it knows in which call each rank was.
inline void check_whereabouts(const ddp_group* group) {
  for (int32_t rank = 0; rank < ddp_group_get_size(group); ++rank) {
    ddp_rank_progress at{};
    at.struct_size = sizeof at;
    if (ddp_group_get_progress(group, rank, &at) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, ddp_last_error());
    const std::string call = ddp_call_name(at.call);
    expect(call.empty() ? at.in_call == 0 : call.compare(0, 4, "ddp_") == 0, "a call: " + call);
    // Empty: its first call was refused, because the group had broken before.
    if (rank == ddp_group_get_rank(group)) expect_equal(at.in_call, 0, "this rank is in no call: " + call);
  }
}

}  // namespace ddp::test
