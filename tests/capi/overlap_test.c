/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of one pass that ddp_model_set_grad gives overlapping memory are refused when they are marked, with both names.
 * Blocks that change hands between passes, as allocators hand them out, are none of that. */
#include <stdlib.h>

#include "support/ranks.h"

enum { N = 1 << 14 }; /* of each gradient: with the buckets below each has one of its own */

typedef struct lent {
  ddp_model *model;
  float value[3][N], grad[3][N], pool[4][N], number;
} lent;

static lent *open_model(ddp_group *group, ddp_unused unused) {
  lent *l = calloc(1, sizeof *l);
  static const char *const names[] = {"x", "y", "z"};
  check_defaults(model_options, options);
  options.reduce = DDP_SUM;
  options.bucket_bytes = options.first_bucket_bytes = sizeof l->grad[0];
  options.unused = unused;
  check_ok(ddp_model_create(group, &options, &l->model));
  for (int p = 0; p < 3; p++) check_ok(ddp_model_add_array(l->model, names[p], l->value[p], l->grad[p], N, NULL));
  const ddp_tensor number = vector_of(&l->number, DDP_F32, 1);
  check_ok(ddp_model_add_buffer(l->model, "number", &number, NULL));
  check_ok(ddp_model_commit(l->model, NULL));
  for (int p = 0; p < 4; p++)
    for (int i = 0; i < N; i++) l->pool[p][i] = 1;
  return l;
}

static ddp_status give(ddp_model *model, int32_t index, float *grad, int64_t count) {
  const ddp_tensor tensor = vector_of(grad, DDP_F32, count);
  return ddp_model_set_grad(model, index, &tensor);
}

static void close_model(lent *l) {
  ddp_model_destroy(l->model);
  free(l);
}

static void check_both(void) {
  check_text(ddp_last_error(), "\"x\"");
  check_text(ddp_last_error(), "\"y\"");
}

check_ranks_case(two_gradients_in_one_array_are_refused_with_both_names, 2) {
  for (int order = 0; order < 4; order++) { /* given before or in the pass; the one or the other marked first */
    lent *l = open_model(self->group, DDP_UNUSED_ERROR);
    if (order < 2) check_ok(ddp_model_begin_backward(l->model, DDP_PASS_REDUCE));
    check_ok(give(l->model, 1, l->pool[0], N));
    check_ok(give(l->model, 0, l->pool[0] + (order == 3 ? N - 1 : 0), N)); /* by one element in the last case */
    check_ok(give(l->model, 2, l->pool[2], N));
    if (order >= 2) check_ok(ddp_model_begin_backward(l->model, DDP_PASS_REDUCE));
    check_ok(ddp_model_mark_ready(l->model, 2, NULL));
    if (order % 2 != 0) check_ok(ddp_model_mark_ready(l->model, 0, NULL));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_mark_ready(l->model, 1, NULL));
    check_both();
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_mark_range_ready(l->model, 1, 0, 10, NULL));
    check_both();
    if (order % 2 == 0) check_ok(ddp_model_mark_ready(l->model, 0, NULL));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(l->model, NULL), "overlaps that of x");
    check_ok(ddp_group_status(self->group));
    for (int pass = 0; pass < 2; pass++) { /* corrected, the same model continues */
      check_ok(ddp_model_begin_backward(l->model, DDP_PASS_REDUCE));
      for (int p = 0; p < 3; p++) {
        for (int i = 0; i < N; i++) l->pool[p][i] = 1;
        check_ok(give(l->model, p, l->pool[p], N));
        check_ok(ddp_model_mark_ready(l->model, p, NULL));
      }
      check_ok(ddp_model_end_backward(l->model, NULL));
      for (int p = 0; p < 3; p++) check_number(l->pool[p][N - 1], 2);
    }
    close_model(l);
  }
}

check_ranks_case(blocks_may_change_hands_between_passes, 2) {
  lent *l = open_model(self->group, DDP_UNUSED_ERROR);
  for (int pass = 0; pass < 12; pass++) {
    check_ok(ddp_model_begin_backward(l->model, DDP_PASS_REDUCE));
    for (int k = 0; k < 3; k++) { /* each gets the block of another one, which has not got a new one yet */
      const int p = (k + pass / 3) % 3;
      float *block = l->pool[(p + pass) % 3];
      for (int i = 0; i < N; i++) block[i] = (float)(p + 1);
      check_ok(give(l->model, p, block, N));
      if (pass % 2 == 0) check_ok(ddp_model_mark_ready(l->model, p, NULL));
    }
    for (int p = 0; p < 3 && pass % 2 != 0; p++) check_ok(ddp_model_mark_ready(l->model, p, NULL));
    check_ok(ddp_model_end_backward(l->model, NULL));
    for (int p = 0; p < 3; p++) check_number(l->pool[(p + pass) % 3][N / 2], 2 * (p + 1));
  }
  close_model(l);
}

check_ranks_case(a_gradient_that_is_left_out_must_not_be_overwritten_either, 2) {
  lent *l = open_model(self->group, DDP_UNUSED_ALLOW);
  for (int way = 0; way < 2; way++) {
    check_ok(ddp_model_begin_backward(l->model, DDP_PASS_REDUCE));
    check_ok(give(l->model, 0, l->grad[1], N)); /* of y, which is not used and keeps its address */
    check_ok(ddp_model_mark_ready(l->model, 0, NULL));
    if (way == 0) check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_mark_unused(l->model, 1));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(l->model, NULL), "overlaps that of x");
  }
  check_ok(ddp_model_begin_backward(l->model, DDP_PASS_REDUCE));
  check_ok(give(l->model, 0, l->grad[0], N));
  check_ok(ddp_model_mark_ready(l->model, 0, NULL));
  check_ok(ddp_model_end_backward(l->model, NULL));
  close_model(l);
}

check_alone_case(memory_of_values_and_buffers_is_refused_at_once) {
  lent *l = open_model(group, DDP_UNUSED_ERROR);
  ddp_model *model = NULL;
  ddp_tensor grad;
  float value[2][8];
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, give(l->model, 0, l->value[1], N), "parameter \"y\"");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, give(l->model, 0, l->value[0] + 1, N), "parameter \"x\"");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, give(l->model, 0, &l->number - 1, N), "\"");
  check_ok(ddp_model_create(group, NULL, &model));
  check_ok(ddp_model_add_array(model, "own", value[0], NULL, 8, NULL));
  check_ok(ddp_model_add_array(model, "lent", value[1], l->pool[0], 8, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_get_grad(model, 0, &grad));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(model, 1, &grad), "the gradient of parameter \"own\"");
  ddp_model_destroy(model);
  close_model(l);
}
