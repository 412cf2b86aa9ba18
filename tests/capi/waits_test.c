/* SPDX-License-Identifier: Apache-2.0 */
/* ddp_group_get_waits in a group of one: its results, and the arguments that it refuses. */
#include <ddp/experimental.h>

#include "support/check.h"

static ddp_group_options one_rank(void) {
  check_defaults(group_options, options);
  options.rank = 0;
  options.world_size = 1;
  options.rendezvous_timeout_ms = 1000;
  return options;
}

check_case(waits_are_asked_as_lists_of_ranks_are) {
  ddp_group_options options = one_rank();
  ddp_group *group = NULL;
  double seconds[2] = {-1, -1};
  int32_t count = 0;
  check_ok(ddp_group_create("tcp://127.0.0.1:1", &options, &group));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_waits(group, seconds, 2, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_waits(group, seconds, -1, &count));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_waits(group, NULL, 1, &count));
  check_ok(ddp_group_get_waits(group, NULL, 0, &count));
  check_int(count, 1);
  check_ok(ddp_group_barrier(group));
  check_ok(ddp_group_get_waits(group, seconds, 2, &count));
  check_int(count, 1);
  check_true(seconds[0] == 0 && seconds[1] == -1); /* alone it waits for no rank, and there is no rank 1 */
  ddp_group_destroy(group);
}
