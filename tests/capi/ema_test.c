/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/ema.h on one rank. */
#include <math.h>

#include "support/ranks.h"

typedef struct fixture {
  ddp_group *group;
  ddp_model *model;
  double value[2], grad[2];
} fixture;

static void open_fixture(fixture *f, int commits) {
  memset(f, 0, sizeof *f);
  f->group = alone();
  check_ok(ddp_model_create(f->group, NULL, &f->model));
  const ddp_tensor value = vector_of(f->value, DDP_F64, 2);
  const ddp_tensor grad = vector_of(f->grad, DDP_F64, 2);
  check_ok(ddp_model_add_parameter(f->model, "w", &value, &grad, NULL));
  if (commits) check_ok(ddp_model_commit(f->model, NULL));
}

static void close_fixture(fixture *f) {
  ddp_model_destroy(f->model);
  ddp_group_destroy(f->group);
}

check_fixture_case(create_refuses_wrong_arguments, open_fixture(f, 1)) {
  ddp_ema *ema = garbage;
  double decays[17];
  for (int i = 0; i < 17; i++) decays[i] = i / 20.0;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, NULL, 1, &ema));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, decays, 1, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, decays, 0, &ema), "count is 0");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, decays, 17, &ema), "count is 17");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, decays, -1, &ema));
  decays[1] = 0;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, decays, 2, &ema), "differ");
  const double wrong[] = {1, -0.5, NAN, INFINITY};
  for (int i = 0; i < 4; i++) {
    decays[1] = wrong[i];
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_create(f->model, decays, 2, &ema), "decays[1]");
  }
  check_true(ema == (ddp_ema *)garbage);
}

check_fixture_case(averages_and_swaps_are_exact, open_fixture(f, 1)) {
  ddp_ema *ema = NULL;
  const double decays[] = {0.5, 0.75};
  check_ok(ddp_ema_create(f->model, decays, 2, &ema));
  f->value[0] = 4;
  check_ok(ddp_ema_update(ema, NULL)); /* a copy */
  f->value[0] = 8;
  check_ok(ddp_ema_update(ema, NULL));
  check_ok(ddp_ema_swap(ema, 0, NULL));
  check_number(f->value[0], 6);
  check_error(DDP_ERROR_INVALID_STATE, ddp_ema_swap(ema, 1, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_ema_update(ema, NULL));
  check_ok(ddp_ema_swap(ema, 0, NULL));
  check_number(f->value[0], 8);
  check_ok(ddp_ema_swap(ema, 1, NULL));
  check_number(f->value[0], 5);
  ddp_ema_destroy(ema); /* the parameters keep what they hold */
  check_number(f->value[0], 5);
}

check_case(calls_at_the_wrong_moment_are_refused) {
  fixture f;
  open_fixture(&f, 0);
  ddp_ema *ema = NULL;
  const double decay = 0.9;
  check_ok(ddp_ema_create(f.model, &decay, 1, &ema));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_ema_update(ema, NULL), "ddp_ema_update");
  check_ok(ddp_model_commit(f.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_ema_swap(ema, 0, NULL), "ddp_ema_update");
  check_ok(ddp_ema_update(ema, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_swap(ema, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_ema_swap(ema, -1, NULL));
  ddp_model_destroy(f.model);
  check_error(DDP_ERROR_INVALID_STATE, ddp_ema_update(ema, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_ema_swap(ema, 0, NULL));
  ddp_ema_destroy(ema);
  ddp_group_destroy(f.group);
}
