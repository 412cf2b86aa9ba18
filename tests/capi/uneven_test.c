/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/uneven.h: every function works, and refuses the wrong state and numbers out of range. What the results must be on any
 * number of ranks and any transport is in conformance/uneven_test.cpp. */
#include <math.h>

#include "support/ranks.h"

static ddp_model *make_model(ddp_group *group, ddp_divisor divisor, int32_t uneven_inputs, float *value) {
  const ddp_tensor tensor = vector_of(value, DDP_F32, 3);
  check_defaults(model_options, options);
  check_int(options.divisor, DDP_DIVISOR_WORLD);
  check_int(options.uneven_inputs, 0);
  options.divisor = divisor;
  options.uneven_inputs = uneven_inputs;
  ddp_model *model = new_model(group, &options);
  check_ok(ddp_model_add_parameter(model, "weight", &tensor, NULL, NULL));
  return model;
}

static float *grad_of(ddp_model *model) {
  ddp_tensor grad;
  check_ok(ddp_model_get_grad(model, 0, &grad));
  return grad.data;
}

static ddp_status pass(ddp_model *model, float gradient) {
  float *const grad = grad_of(model);
  grad[0] = grad[1] = grad[2] = gradient;
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  return ddp_model_end_backward(model, NULL);
}

static ddp_pass_report report_of(ddp_model *model) {
  ddp_pass_report report;
  memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  check_ok(ddp_model_get_pass_report(model, &report));
  check_int(report.struct_size, sizeof report);
  return report;
}

/* `bits`: bit r is set if rank r is absent. */
static void check_absent(ddp_model *model, int64_t bits) {
  int32_t ranks[8], count = -1;
  int64_t found = 0;
  check_ok(ddp_model_get_absent(model, ranks, 8, &count));
  for (int32_t at = 0; at < count; at++) found |= INT64_C(1) << ranks[at];
  check_int(found, bits);
  check_int(report_of(model).absent_count, count);
  check_int(report_of(model).reserved, 0);
}

check_ranks_case(gradients_count_by_weight, 2) {
  float value[3] = {0, 0, 0};
  ddp_model *model = make_model(self->group, DDP_DIVISOR_WEIGHTS, 0, value);
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_set_weight(model, self->index == 0 ? 30 : 10));
  check_ok(pass(model, self->index == 0 ? 1 : 5));
  check_number(grad_of(model)[2], 2); /* (30 * 1 + 10 * 5) / 40 */
  check_int(report_of(model).contributors, 2);
  check_number(report_of(model).weight, 40);
  check_absent(model, 0);
  if (self->index == 0) {
    check_ok(ddp_model_set_last_pass(model));
    check_ok(ddp_model_skip_backward(model, NULL));
  } else {
    check_ok(pass(model, 7));
  }
  check_number(grad_of(model)[0], 7);
  check_int(report_of(model).contributors, 1);
  check_int(report_of(model).last, 1);
  check_absent(model, 1);
  if (self->index == 1) check_ok(ddp_model_set_weight(model, 0));
  check_ok(pass(model, 1));
  check_absent(model, 2);
  check_int(report_of(model).last, 0);
  check_ok(ddp_model_set_weight(model, 0));
  check_error_text(DDP_ERROR_INVALID_STATE, pass(model, 1), "no rank contributed");
  check_ok(ddp_group_barrier(self->group));
  ddp_model_destroy(model);
}

check_ranks_case(an_abandoned_pass_tells_the_others_why, 2) {
  float value[3] = {0, 0, 0};
  ddp_model *model = make_model(self->group, DDP_DIVISOR_WORLD, 0, value);
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  if (self->index == 1) {
    check_ok(ddp_model_abandon_backward(model, "the batch is broken", NULL));
  } else {
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(model, NULL), "the batch is broken");
  }
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  if (self->index == 0) {
    check_ok(ddp_model_abandon_backward(model, NULL, NULL));
  } else {
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(model, NULL), "no reason was given");
  }
  check_ok(pass(model, (float)(self->index + 1)));
  check_number(grad_of(model)[1], 1.5);
  ddp_model_destroy(model);
}

check_ranks_case(a_joined_rank_ends_with_the_state_of_the_last, 2) {
  float value[3] = {1, 2, 3};
  double rate = 0;
  ddp_optimizer *optimizer = NULL;
  ddp_model *model = make_model(self->group, DDP_DIVISOR_WEIGHTS, 1, value);
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_optimizer_create_sgd(model, NULL, NULL, &optimizer));
  check_ok(ddp_optimizer_set_rate(optimizer, 1));
  for (int batch = 0; batch < 2 + 2 * self->index; batch++) {
    check_ok(pass(model, 1));
    check_ok(ddp_optimizer_step(optimizer, NULL));
    if (batch == 3) check_ok(ddp_optimizer_set_rate(optimizer, 0.125));
    if (batch == 3)
      check_error_text(DDP_ERROR_INVALID_STATE, ddp_group_barrier(self->group), "is out of data (ddp_model_join)");
  }
  check_ok(ddp_model_join(model, NULL));
  check_number(value[0], -3); /* four steps of 1 */
  check_number(value[2], -1);
  check_ok(ddp_optimizer_get_rate(optimizer, &rate));
  check_number(rate, 0.125);
  check_ok(ddp_group_barrier(self->group));
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
}

check_alone_case(wrong_options_are_refused) {
  ddp_model *model = NULL;
  check_defaults(model_options, options);
  options.divisor = (ddp_divisor)2;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, &options, &model), "divisor");
  options.divisor = DDP_DIVISOR_WEIGHTS;
  options.reduce = DDP_SUM;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, &options, &model), "DDP_SUM");
  options.reduce = DDP_AVERAGE;
  options.uneven_inputs = 2;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, &options, &model), "uneven_inputs");
}

check_alone_case(a_model_that_is_not_committed_is_refused) {
  const ddp_status wrong_moment = DDP_ERROR_INVALID_STATE;
  float value[3] = {0, 0, 0};
  ddp_model *model = make_model(group, DDP_DIVISOR_WEIGHTS, 1, value);
  ddp_pass_report report;
  memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  check_error(wrong_moment, ddp_model_set_weight(model, 1));
  check_error(wrong_moment, ddp_model_set_last_pass(model));
  check_error(wrong_moment, ddp_model_skip_backward(model, NULL));
  check_error(wrong_moment, ddp_model_abandon_backward(model, "why", NULL));
  check_error(wrong_moment, ddp_model_get_pass_report(model, &report));
  check_error(wrong_moment, ddp_model_join(model, NULL));
  ddp_model_destroy(model);
}

check_alone_case(the_wrong_moment_and_wrong_values_are_refused) {
  const double wrong[] = {-1, NAN, INFINITY, 1e-30, 1e30};
  float value[3] = {0, 0, 0};
  ddp_pass_report report;
  ddp_model *plain = make_model(group, DDP_DIVISOR_WORLD, 0, value);
  float other[3] = {0, 0, 0};
  ddp_model *model = make_model(group, DDP_DIVISOR_WEIGHTS, 1, other);
  check_ok(ddp_model_commit(plain, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_set_weight(plain, 1), "DDP_DIVISOR_WEIGHTS");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_join(plain, NULL), "uneven_inputs");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_weight(model, wrong[i]));
  memset(&report, 0, sizeof report);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_pass_report(model, NULL));
  report.struct_size = sizeof report;
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_get_pass_report(model, &report), "no pass");
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_abandon_backward(model, "why", NULL));
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_skip_backward(model, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_join(model, NULL));
  check_ok(ddp_model_set_weight(model, 3));
  check_ok(ddp_model_set_last_pass(model));
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_set_weight(model, 4));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_set_last_pass(model));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_abandon_backward(model, "why", NULL), "all gradients had been sent");
  check_number(report_of(model).weight, 3);
  report.struct_size = 4;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_pass_report(model, &report));
  check_ok(ddp_model_join(model, NULL)); /* a group of one has joined at once */
  ddp_model_destroy(model);
  ddp_model_destroy(plain);
}
