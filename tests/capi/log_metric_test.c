/* SPDX-License-Identifier: Apache-2.0 */
/* ddp_group_log_metric in a group of one: what it takes, and what it refuses. */
#include <ddp/experimental.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"

static ddp_group *alone(void) {
  ddp_group *group = NULL;
  check_defaults(group_options, options);
  options.rank = 0;
  options.world_size = 1;
  check_ok(ddp_group_create("tcp://127.0.0.1:1", &options, &group));
  return group;
}

check_case(numbers_of_any_value_are_taken) {
  ddp_group *group = alone();
  const double values[] = {0, -1e300, NAN, INFINITY, 3};
  for (size_t i = 0; i < sizeof values / sizeof *values; ++i) check_ok(ddp_group_log_metric(group, "loss", values[i]));
  check_ok(ddp_group_abort(group, "a test"));
  check_ok(ddp_group_log_metric(group, "loss", 1)); /* the group has failed; the number is of this process alone */
  ddp_group_destroy(group);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_log_metric(group, "loss", 1));
}

check_case(names_are_checked) {
  ddp_group *group = alone();
  char longest[65];
  memset(longest, 'x', sizeof longest);
  longest[64] = '\0';
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_log_metric(group, NULL, 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_log_metric(group, "", 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_log_metric(group, longest, 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_log_metric(group, "my loss", 1));
  check_true(strstr(ddp_last_error(), "name is \"my loss\"; a name has 1 to 63 letters") != NULL);
  longest[63] = '\0';
  check_ok(ddp_group_log_metric(group, longest, 1));
  ddp_group_destroy(group);
}

/* Of a process, so all of its groups share them. */
check_case(names_are_counted) {
  ddp_group *first = alone(), *second = alone();
  char name[16];
  int taken = 0;
  for (int i = 0; i < 64; ++i) {
    snprintf(name, sizeof name, "n%d", i);
    taken += ddp_group_log_metric(i % 2 == 0 ? first : second, name, i) == DDP_OK;
  }
  check_int(taken, 62); /* two names are of the tests above */
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_log_metric(second, "one-more", 1));
  check_true(strstr(ddp_last_error(), "\"one-more\" would be name number 65 of this process") != NULL);
  check_ok(ddp_group_log_metric(second, "n0", 1));
  ddp_group_destroy(first);
  ddp_group_destroy(second);
}
