// SPDX-License-Identifier: Apache-2.0
// Every rank can ask in which call another one is, and which one it has made last (ddp_group_get_progress): over threads,
// shared memory and Gloo.

#include "control/user_call.hpp"
#include "group/collective_call.hpp"
#include "group/recovery.hpp"
#include "os/clock.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

std::string describe(const group::Recovery::Progress& at) {
  return std::string(at.in_call ? "in " : "after ") + bootstrap::name_of(static_cast<bootstrap::UserCall>(at.call)) +
         ", pass " + std::to_string(at.pass);
}

/// Ranks say it with heartbeats.
void wait_until(const group::Group& group, int32_t rank, const std::string& wanted) {
  const os::Deadline deadline = os::Deadline::in_ms(20'000);
  std::string last;
  while (!deadline.passed()) {
    last = describe(group::Recovery::progress(group, rank));
    if (last == wanted) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  expect_equal(last, wanted, "rank " + std::to_string(rank));
}

ddp_ranks_case_on(kThreePaths, run_on, a_rank_is_seen_in_its_call_and_after_it, 3) {
  if (rank != 1) wait_until(group, 1, "in ddp_group_barrier, pass -1");
  group.barrier();  // in which rank 1 waits for both
  for (int32_t each = 0; each < 3; ++each) wait_until(group, each, "after ddp_group_barrier, pass -1");
  static_cast<void>(group.gather("all have seen it", ""));
  double metric = 1;
  group::reduce_metrics(group, flat_tensor(&metric, DDP_F64, 1), DDP_SUM);
  for (int32_t each = 0; each < 3; ++each) wait_until(group, each, "after ddp_group_reduce_metrics, pass -1");
  static_cast<void>(group.gather("all have seen the second", ""));
}
