// SPDX-License-Identifier: Apache-2.0
// The report that other ranks get about a rank whose process ends by exit(), by rank 0's state machine
// (support/control_world.hpp).

#include "support/check.hpp"
#include "support/control_world.hpp"

ddp_case(who_exits_is_named_with_a_rank_that_waits) {
  for (const bool waits : {false, true}) {
    ControlWorld world(3);
    formed(world);
    bootstrap::BlockedCall blocked;
    blocked.call = bootstrap::UserCall::kBarrier;
    if (waits) world.blocked(1, blocked);
    world.run();
    world.leave(2, bootstrap::Leaving::kProcess);
    world.run();
    const std::string expected = std::string("rank 2 (host h2, pid 102) exited without ddp_group_destroy") +
                                 (waits ? " while rank 1 (host h1, pid 101) waited in ddp_group_barrier" : "");
    for (const size_t r : {size_t{0}, size_t{1}}) {
      expect_equal(world[r].failed->text(), expected, "the cause");
      expect_equal(static_cast<int>(world[r].failed->status()), static_cast<int>(DDP_ERROR_ABORTED), "the status");
    }
  }
  ControlWorld world(2);
  formed(world);
  world.leave(1, bootstrap::Leaving::kProcessInside);
  world.run();
  expect_contains(world[0].failed->text(), "exited with an open pass or request, without ddp_group_destroy");
}
