/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/backward.h on one rank: the states of a pass, and the gradients after it. */
#include <math.h>

#include "support/ranks.h"

/* Two parameters, one gradient the caller's and one the library's. */
typedef struct fixture {
  ddp_group *group;
  ddp_model *model;
  float value[3], grad[3], other[2];
  float *owned;
} fixture;

static void open_fixture(fixture *f, ddp_unused unused) {
  memset(f, 0, sizeof *f);
  ddp_tensor grad;
  f->group = alone();
  check_defaults(model_options, options);
  options.unused = unused;
  check_ok(ddp_model_create(f->group, &options, &f->model));
  const ddp_tensor value = vector_of(f->value, DDP_F32, 3), mine = vector_of(f->grad, DDP_F32, 3),
                   other = vector_of(f->other, DDP_F32, 2);
  check_ok(ddp_model_add_parameter(f->model, "first", &value, &mine, NULL));
  check_ok(ddp_model_add_parameter(f->model, "second", &other, NULL, NULL));
  check_ok(ddp_model_commit(f->model, NULL));
  memset(&grad, 0, sizeof grad);
  check_ok(ddp_model_get_grad(f->model, 1, &grad));
  f->owned = grad.data;
  assert_non_null(f->owned);
}

static void close_fixture(fixture *f) {
  ddp_model_destroy(f->model);
  ddp_group_destroy(f->group);
}

static void fill(fixture *f) {
  for (int i = 0; i < 3; i++) f->grad[i] = (float)(i + 1);
  f->owned[0] = -4, f->owned[1] = 8;
}

static void check_filled(const fixture *f, float factor) {
  for (int i = 0; i < 3; i++) check_number(f->grad[i], (float)(i + 1) * factor);
  check_number(f->owned[0], -4 * factor);
  check_number(f->owned[1], 8 * factor);
}

check_fixture_case(one_rank_keeps_its_gradients_exactly, open_fixture(f, DDP_UNUSED_ERROR)) {
  for (int step = 0; step < 5; step++) {
    check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
    fill(f);
    check_ok(ddp_model_mark_ready(f->model, step % 2, NULL));
    check_ok(ddp_model_mark_ready(f->model, 1 - step % 2, NULL));
    check_ok(ddp_model_end_backward(f->model, NULL));
    check_filled(f, 1);
  }
  ddp_model_stats stats;
  stats.struct_size = sizeof stats;
  check_ok(ddp_model_get_stats(f->model, &stats));
  check_int(stats.passes, 5);
  check_int(stats.gradient_bytes, 20);
  check_true(stats.exposed_ns >= 0 && stats.comm_ns >= 0 && stats.backward_ns >= stats.exposed_ns);
  check_true(stats.total_backward_ns >= stats.backward_ns);
}

check_fixture_case(a_gradient_is_marked_in_ranges, open_fixture(f, DDP_UNUSED_ERROR)) {
  ddp_tensor grad;
  check_ok(ddp_model_get_grad(f->model, 0, &grad));
  const int64_t count = grad.shape[0];
  const ddp_status wrong_moment = DDP_ERROR_INVALID_STATE, wrong = DDP_ERROR_INVALID_ARGUMENT;
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  fill(f);
  check_error(wrong, ddp_model_mark_range_ready(f->model, 2, 0, 1, NULL));
  check_error(wrong, ddp_model_mark_range_ready(f->model, 0, 0, count + 1, NULL));
  check_error(wrong, ddp_model_mark_range_ready(f->model, 0, -1, 1, NULL));
  check_error(wrong, ddp_model_mark_range_ready(f->model, 0, 0, 0, NULL));
  check_ok(ddp_model_mark_range_ready(f->model, 0, 1, count - 1, NULL));
  check_error_text(wrong_moment, ddp_model_mark_range_ready(f->model, 0, count - 1, 1, NULL), "first");
  check_error_text(wrong_moment, ddp_model_mark_ready(f->model, 0, NULL), "first");
  check_ok(ddp_model_mark_ready(f->model, 1, NULL));
  check_error_text(wrong_moment, ddp_model_end_backward(f->model, NULL), "\"first (elements 0 to 0)\"");
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  fill(f);
  check_ok(ddp_model_mark_range_ready(f->model, 0, 1, count - 1, NULL));
  check_ok(ddp_model_mark_range_ready(f->model, 0, 0, 1, NULL));
  check_error(wrong_moment, ddp_model_mark_range_ready(f->model, 0, 0, 1, NULL));
  check_ok(ddp_model_mark_ready(f->model, 1, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_filled(f, 1);
}

check_fixture_case(a_pass_keeps_its_states, open_fixture(f, DDP_UNUSED_ERROR)) {
  const ddp_status wrong_moment = DDP_ERROR_INVALID_STATE, wrong = DDP_ERROR_INVALID_ARGUMENT;
  double norm = 0;
  ddp_tensor grad;
  check_error(wrong_moment, ddp_model_mark_ready(f->model, 0, NULL));
  check_error(wrong_moment, ddp_model_mark_range_ready(f->model, 0, 0, 1, NULL));
  check_error(wrong_moment, ddp_model_mark_unused(f->model, 0));
  check_error(wrong_moment, ddp_model_end_backward(f->model, NULL));
  check_error(wrong, ddp_model_begin_backward(f->model, (ddp_pass)4));
  check_error(wrong, ddp_model_begin_backward(f->model, (ddp_pass)-1));
  check_int(ddp_model_was_used(f->model, 0), -1);

  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_error(wrong_moment, ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_error(wrong_moment, ddp_model_zero_grad(f->model, NULL));
  check_error(wrong_moment, ddp_model_scale_grad(f->model, 2, NULL));
  check_error(wrong_moment, ddp_model_get_grad_norm(f->model, 2, &norm, NULL));
  check_error(wrong_moment, ddp_model_check_replicas(f->model, NULL));
  check_error(wrong_moment, ddp_model_sync_buffers(f->model, 0, NULL));
  check_error(wrong_moment, ddp_group_barrier(f->group));
  check_error(wrong, ddp_model_mark_ready(f->model, 2, NULL));
  check_error(wrong, ddp_model_mark_ready(f->model, -1, NULL));
  check_error(wrong_moment, ddp_model_mark_unused(f->model, 0)); /* needs DDP_UNUSED_ALLOW */
  fill(f);
  check_ok(ddp_model_mark_ready(f->model, 0, NULL));
  check_error_text(wrong_moment, ddp_model_mark_ready(f->model, 0, NULL), "first");
  check_ok(ddp_model_get_grad(f->model, 0, &grad));
  check_error(wrong_moment, ddp_model_set_grad(f->model, 0, &grad));
  check_ok(ddp_model_mark_ready(f->model, 1, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_filled(f, 1);
  check_error(wrong_moment, ddp_model_end_backward(f->model, NULL));
  check_ok(ddp_group_barrier(f->group));
  check_int(ddp_model_was_used(f->model, 0), 1);
  check_int(ddp_model_was_used(f->model, 2), -1);
  check_int(ddp_model_was_used(f->model, -1), -1);
}

check_fixture_case(models_of_one_group_have_open_passes_together, open_fixture(f, DDP_UNUSED_ALLOW)) {
  float value = 0, grad = 3;
  const ddp_tensor tensor = vector_of(&value, DDP_F32, 1), gradient = vector_of(&grad, DDP_F32, 1);
  ddp_model *other = new_model(f->group, NULL);
  check_ok(ddp_model_add_parameter(other, "p", &tensor, &gradient, NULL));
  check_ok(ddp_model_commit(other, NULL));
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_begin_backward(other, DDP_PASS_REDUCE));
  fill(f);
  check_ok(ddp_model_mark_ready(f->model, 0, NULL));
  check_ok(ddp_model_mark_ready(other, 0, NULL));
  check_ok(ddp_model_mark_ready(f->model, 1, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_group_barrier(f->group));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_filled(f, 1);
  check_error(DDP_ERROR_INVALID_STATE, ddp_group_barrier(f->group)); /* the other pass is still open */
  check_ok(ddp_model_end_backward(other, NULL));
  check_true(grad == 3);
  check_ok(ddp_group_barrier(f->group));
  ddp_model_destroy(other);
}

check_fixture_case(unmarked_parameters_are_an_error_with_their_names, open_fixture(f, DDP_UNUSED_ERROR)) {
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(f->model, 0, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(f->model, NULL), "second");
  check_ok(ddp_group_status(f->group)); /* the group stays whole, the pass is over */
  check_ok(ddp_model_zero_grad(f->model, NULL));
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  fill(f);
  check_ok(ddp_model_mark_ready(f->model, 1, NULL));
  check_ok(ddp_model_mark_ready(f->model, 0, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_filled(f, 1);
}

check_fixture_case(unused_parameters_stay_untouched_where_allowed, open_fixture(f, DDP_UNUSED_ALLOW)) {
  fill(f);
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_unused(f->model, 1));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_mark_ready(f->model, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_mark_unused(f->model, 2));
  check_ok(ddp_model_mark_ready(f->model, 0, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_int(ddp_model_was_used(f->model, 0), 1);
  check_int(ddp_model_was_used(f->model, 1), 0);
  check_filled(f, 1);
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE)); /* no call for it: unused as well */
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_int(ddp_model_was_used(f->model, 0), 0);
}

check_fixture_case(accumulation_counts_as_use, open_fixture(f, DDP_UNUSED_ALLOW)) {
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_ACCUMULATE));
  fill(f);
  check_ok(ddp_model_mark_ready(f->model, 1, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(f->model, 0, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_int(ddp_model_was_used(f->model, 0), 1);
  check_int(ddp_model_was_used(f->model, 1), 1);
  check_filled(f, 1);
}

check_fixture_case(norm_and_scale_are_over_all_gradients, open_fixture(f, DDP_UNUSED_ERROR)) {
  double norm = -1;
  fill(f);
  check_ok(ddp_model_get_grad_norm(f->model, 1, &norm, NULL));
  check_number(norm, 1 + 2 + 3 + 4 + 8);
  check_ok(ddp_model_get_grad_norm(f->model, 2, &norm, NULL));
  check_number(norm, sqrt(1 + 4 + 9 + 16 + 64));
  check_ok(ddp_model_get_grad_norm(f->model, (double)INFINITY, &norm, NULL));
  check_number(norm, 8);
  norm = -1;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_grad_norm(f->model, 3, &norm, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_grad_norm(f->model, (double)NAN, &norm, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_grad_norm(f->model, 2, NULL, NULL));
  check_number(norm, -1);
  check_ok(ddp_model_scale_grad(f->model, 0.5, NULL));
  check_filled(f, 0.5f);
  check_ok(ddp_model_zero_grad(f->model, NULL));
  check_filled(f, 0);
}

check_fixture_case(a_broken_group_refuses_a_new_pass, open_fixture(f, DDP_UNUSED_ERROR)) {
  check_ok(ddp_group_abort(f->group, "enough"));
  check_error_text(DDP_ERROR_ABORTED, ddp_model_begin_backward(f->model, DDP_PASS_REDUCE), "enough");
}

check_case(destroying_in_an_open_pass_aborts_the_group) {
  fixture f;
  open_fixture(&f, DDP_UNUSED_ERROR);
  check_ok(ddp_model_begin_backward(f.model, DDP_PASS_REDUCE));
  ddp_model_destroy(f.model);
  check_error(DDP_ERROR_ABORTED, ddp_group_status(f.group));
  ddp_group_destroy(f.group);
}
