/* SPDX-License-Identifier: Apache-2.0 */
/* Sub-groups through the C API; ranks are threads. */
#include "support/ranks.h"

check_ranks_case(groups_are_divided_and_outlive_their_parent, 4) {
  const int32_t r = self->index;
  ddp_group *half = NULL, *turned = NULL, *none = self->group, *quarter = NULL;
  ddp_group_options options;
  check_ok(ddp_group_split(self->group, r / 2, 0, NULL, &half));
  check_int(ddp_group_get_size(half), 2);
  check_int(ddp_group_get_rank(half), r % 2);
  double sum = 1 << r;
  check_ok(ddp_group_reduce_metrics(half, &sum, 1, DDP_SUM));
  check_number(sum, r < 2 ? 3 : 12);

  check_ok(ddp_group_options_init(&options, sizeof options));
  options.timeout_ms = 7000;
  check_ok(ddp_group_split(self->group, 0, -r, &options, &turned));
  check_int(ddp_group_get_rank(turned), 3 - r);

  check_ok(ddp_group_split(self->group, r == 1 ? 5 : DDP_NO_COLOR, 0, NULL, &none));
  check_int(none == NULL, r != 1);
  ddp_group_destroy(none);

  check_ok(ddp_group_split(half, r % 2, 0, NULL, &quarter));
  check_int(ddp_group_get_size(quarter), 1);
  ddp_group_destroy(half);
  check_ok(ddp_group_barrier(quarter));
  ddp_group_destroy(self->group); /* before its children */
  self->group = NULL;
  sum = r;
  check_ok(ddp_group_reduce_metrics(turned, &sum, 1, DDP_MAX));
  check_number(sum, 3);
  ddp_group_destroy(turned);
  ddp_group_destroy(quarter);
}

check_case(wrong_arguments_are_refused) {
  const ddp_status bad = DDP_ERROR_INVALID_ARGUMENT;
  ddp_group *group = alone(), *part = group;
  check_defaults(group_options, options);
  check_error_text(bad, ddp_group_split(group, 0, 0, NULL, NULL), "out_group is NULL");
  check_error_text(bad, ddp_group_split(group, -2, 0, NULL, &part), "color is -2");
  options.rank = 0;
  check_error_text(bad, ddp_group_split(group, 0, 0, &options, &part), "options->rank");
  options.rank = -1;
  options.backend = (ddp_backend)9;
  check_error_text(bad, ddp_group_split(group, 0, 0, &options, &part), "ddp_group_split: backend is 9");
  options.struct_size = 0;
  check_error_text(bad, ddp_group_split(group, 0, 0, &options, &part), "struct_size is 0");
  check_int(part == group, 1);
  check_ok(ddp_group_split(group, 0, 0, NULL, &part));
  check_ok(ddp_group_barrier(part));
  ddp_group_destroy(part);
  ddp_group_destroy(group);
}
