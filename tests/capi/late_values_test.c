/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/late_values.h: arguments, what there is to wait for in a group of one, and a training of two ranks. */
#include "ddp/late_values.h"

#include <stdlib.h>
#include <unistd.h>

#include "support/optimizer_fixture.h"

static ddp_optimizer *late_sgd(ddp_model *model) {
  ddp_optimizer *optimizer = NULL;
  check_defaults(optimizer_options, options);
  check_int(options.late_values, 0);
  options.shard = options.late_values = 1;
  check_ok(ddp_optimizer_create_sgd(model, NULL, &options, &optimizer));
  return optimizer;
}

check_fixture_case(wrong_arguments_are_refused, open_fixture(f)) {
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_wait_value(f->model, 2, NULL), "2 parameters");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_wait_value(f->model, -1, NULL), "index is -1");
  check_int(ddp_model_value_ready(f->model, 2), -1);
  assert_non_null(strstr(ddp_last_error(), "2 parameters"));
}

check_alone_case(there_is_nothing_to_wait_for_alone) {
  fixture f;
  open_fixture(&f);
  check_int(ddp_model_value_ready(f.model, 0), 1);
  check_ok(ddp_model_wait_values(f.model));
  ddp_optimizer *optimizer = late_sgd(f.model);
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_int(ddp_model_value_ready(f.model, 0), 1);
  check_ok(ddp_model_wait_value(f.model, 1, NULL));
  check_number(f.value[1][2], (float)3 - 0.01F * 2);
  ddp_optimizer_destroy(optimizer);
  close_fixture(&f);
  ddp_model *model = new_model(group, NULL);
  check_ok(ddp_model_wait_values(model)); /* before commit */
  ddp_model_destroy(model);
}

enum { COUNT = 5000 };

typedef struct trained {
  float value[2][COUNT], grad[2][COUNT];
} trained;

static ddp_model *open_trained(ddp_group *group, trained *t) {
  ddp_model *model = new_model(group, NULL);
  for (int p = 0; p < 2; p++) check_ok(ddp_model_add_array(model, p ? "b" : "a", t->value[p], t->grad[p], COUNT, NULL));
  check_ok(ddp_model_commit(model, NULL));
  return model;
}

/* Each parameter is waited for before it is read; the mean of the ranks' gradients is 1. */
check_ranks_case(two_ranks_train, 2) {
  trained *const t = calloc(1, sizeof *t);
  ddp_model *const model = open_trained(self->group, t);
  ddp_optimizer *optimizer = late_sgd(model);
  float expected = 0;
  for (int step = 0; step < 10; step++) {
    for (int p = 0; p < 2; p++) {
      check_ok(ddp_model_wait_value(model, p, NULL));
      check_int(ddp_model_value_ready(model, p), 1);
      for (int i = 0; i < COUNT; i++) check_number(t->value[p][i], expected);
    }
    check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (int p = 1; p >= 0; p--) {
      for (int i = 0; i < COUNT; i++) t->grad[p][i] = self->index == 0 ? 2 : 0;
      check_ok(ddp_model_mark_ready(model, p, NULL));
    }
    check_ok(ddp_model_end_backward(model, NULL));
    check_ok(ddp_optimizer_step(optimizer, NULL));
    expected -= 0.01F;
  }
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model); /* waits for the last values, which the other rank reads */
  for (int i = 0; i < COUNT; i++) check_number(t->value[0][i], expected);
  free(t);
}

/* The ranks make the last step of the first optimizer and that of the second at different times, so a second step that did
 * not wait would come before the gathers of the first on one rank and behind them on the other. */
check_ranks_case(another_optimizer_waits_too, 2) {
  ddp_optimizer *next = NULL;
  trained *const t = calloc(1, sizeof *t);
  ddp_model *const model = open_trained(self->group, t);
  ddp_optimizer *optimizer = late_sgd(model);
  for (int step = 0; step < 2; step++) {
    for (int i = 0; i < COUNT; i++) t->grad[0][i] = t->grad[1][i] = 1;
    check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (int p = 1; p >= 0; p--) check_ok(ddp_model_mark_ready(model, p, NULL));
    check_ok(ddp_model_end_backward(model, NULL));
    if (self->index == 1 && step == 1) usleep(200 * 1000);
    check_ok(ddp_optimizer_step(optimizer, NULL));
  }
  if (self->index == 1) usleep(200 * 1000);
  ddp_optimizer_destroy(optimizer);
  check_ok(ddp_optimizer_create_sgd(model, NULL, NULL, &next));
  for (int i = 0; i < COUNT; i++) t->grad[0][i] = t->grad[1][i] = 1;
  check_ok(ddp_model_mark_reduced(model));
  check_ok(ddp_optimizer_step(next, NULL));
  check_ok(ddp_model_wait_values(model));
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < COUNT; i++) check_number(t->value[p][i], 0.0F - 0.01F - 0.01F - 0.01F);
  ddp_optimizer_destroy(next);
  ddp_model_destroy(model);
  free(t);
}
