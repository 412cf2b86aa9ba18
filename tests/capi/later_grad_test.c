/* SPDX-License-Identifier: Apache-2.0 */
/* ddp_model_add_parameter_without_grad and ddp_model_set_grad with NULL: states, and what is refused. What passes of several
 * ranks do is in conformance/later_gradients_test.cpp. */
#include "support/ranks.h"

typedef struct world {
  ddp_group *group;
  ddp_model *model;
  float value[4], other[4], other_grad[4], grad[4];
} world;

static ddp_tensor four(float *data) { return vector_of(data, DDP_F32, 4); }

/* "later" without a gradient, "other" with one; not committed. */
static void make(world *self) {
  int32_t index = -1;
  memset(self, 0, sizeof *self);
  self->group = alone();
  check_ok(ddp_model_create(self->group, NULL, &self->model));
  const ddp_tensor value = four(self->value);
  check_ok(ddp_model_add_parameter_without_grad(self->model, "later", &value, &index));
  check_int(index, 0);
  check_ok(ddp_model_add_array(self->model, "other", self->other, self->other_grad, 4, &index));
  check_int(index, 1);
}

static void destroy(world *self) {
  ddp_model_destroy(self->model);
  ddp_group_destroy(self->group);
}

static void give(world *self) {
  const ddp_tensor grad = four(self->grad);
  check_ok(ddp_model_set_grad(self->model, 0, &grad));
}

static ddp_status pass(world *self) {
  check_ok(ddp_model_begin_backward(self->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(self->model, 1, NULL));
  check_ok(ddp_model_mark_ready(self->model, 0, NULL));
  return ddp_model_end_backward(self->model, NULL);
}

check_case(a_gradient_is_given_and_taken_back) {
  world self;
  ddp_tensor found;
  ddp_optimizer *optimizer = NULL;
  make(&self);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_get_grad(self.model, 0, &found), "\"later\"");
  check_ok(ddp_model_commit(self.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_get_grad(self.model, 0, &found), "ddp_model_set_grad");
  check_ok(ddp_optimizer_create_sgd(self.model, NULL, NULL, &optimizer));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "\"later\"");
  for (int round = 0; round < 3; round++) {
    give(&self);
    check_ok(ddp_model_get_grad(self.model, 0, &found));
    check_true(found.data == self.grad);
    self.grad[2] = 100;
    check_ok(pass(&self));
    check_ok(ddp_optimizer_step(optimizer, NULL));
    check_number(self.value[2], -(round + 1)); /* rate 0.01 */
    check_ok(ddp_model_set_grad(self.model, 0, NULL));
    check_ok(ddp_model_set_grad(self.model, 0, NULL));
    check_ok(ddp_model_zero_grad(self.model, NULL));
    check_number(self.grad[2], 100);
    check_error(DDP_ERROR_INVALID_STATE, ddp_model_get_grad(self.model, 0, &found));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "\"later\"");
  }
  ddp_optimizer_destroy(optimizer);
  destroy(&self);
}

check_case(it_may_be_given_before_the_commit) {
  world self;
  make(&self);
  give(&self);
  check_ok(ddp_model_commit(self.model, NULL));
  check_ok(pass(&self));
  destroy(&self);
}

check_case(what_needs_it_is_refused_with_its_name) {
  world self;
  double norm = 0;
  int32_t found = -1, count = 0;
  make(&self);
  check_ok(ddp_model_commit(self.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_get_grad_norm(self.model, 2, &norm, NULL), "\"later\"");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_scale_grad(self.model, 2, NULL), "\"later\"");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_clip_grad_norm(self.model, 1, 2, NULL, NULL), "\"later\"");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_clip_grad_value(self.model, 1, NULL), "\"later\"");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_mark_reduced(self.model), "\"later\"");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_skip_backward(self.model, NULL), "\"later\"");
  check_ok(ddp_model_begin_backward(self.model, DDP_PASS_REDUCE));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_mark_ready(self.model, 0, NULL), "ddp_model_set_grad");
  check_int(ddp_get_error_parameters(&found, 1, &count), DDP_OK);
  check_int(count, 1);
  check_int(found, 0);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_mark_range_ready(self.model, 0, 0, 2, NULL), "\"later\"");
  give(&self);
  check_ok(ddp_model_mark_ready(self.model, 0, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_set_grad(self.model, 0, NULL), "marked already");
  check_ok(ddp_model_mark_ready(self.model, 1, NULL));
  check_ok(ddp_model_end_backward(self.model, NULL));
  check_ok(ddp_model_get_grad_norm(self.model, 2, &norm, NULL));
  destroy(&self);
}

check_case(two_gradients_do_not_share_memory) {
  world self;
  make(&self);
  check_ok(ddp_model_commit(self.model, NULL));
  const ddp_tensor other = four(self.other_grad), value = four(self.other);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(self.model, 0, &value), "overlaps");
  check_ok(ddp_model_set_grad(self.model, 0, &other));
  check_ok(ddp_model_begin_backward(self.model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(self.model, 0, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_mark_ready(self.model, 1, NULL), "overlap");
  check_ok(ddp_model_abandon_backward(self.model, NULL, NULL));
  check_ok(ddp_model_set_grad(self.model, 0, NULL)); /* and "other" has its memory again */
  give(&self);
  check_ok(pass(&self));
  destroy(&self);
}

check_case(other_parameters_keep_their_gradient) {
  world self;
  make(&self);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(self.model, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(self.model, 2, NULL));
  destroy(&self);
}

check_case(wrong_arguments_are_refused) {
  world self;
  int32_t index = 7;
  float value[4] = {0, 0, 0, 0};
  int64_t integers[4] = {0, 0, 0, 0};
  const ddp_tensor right = four(value), wrong = vector_of(integers, DDP_I64, 4), none = vector_of(NULL, DDP_F32, 0);
  make(&self);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter_without_grad(NULL, "w", &right, &index));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter_without_grad(self.model, NULL, &right, &index));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter_without_grad(self.model, "", &right, &index));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter_without_grad(self.model, "other", &right, &index));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter_without_grad(self.model, "w", NULL, &index));
  check_error(DDP_ERROR_NOT_SUPPORTED, ddp_model_add_parameter_without_grad(self.model, "w", &wrong, &index));
  const ddp_tensor taken = four(self.value);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter_without_grad(self.model, "w", &taken, &index));
  check_int(index, 7);
  check_ok(ddp_model_add_parameter_without_grad(self.model, "empty", &none, NULL)); /* has nothing to wait for */
  check_ok(ddp_model_commit(self.model, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_add_parameter_without_grad(self.model, "w", &right, &index));
  give(&self);
  check_ok(ddp_model_begin_backward(self.model, DDP_PASS_REDUCE));
  for (int32_t each = 0; each < 3; each++) check_ok(ddp_model_mark_ready(self.model, each, NULL));
  check_ok(ddp_model_end_backward(self.model, NULL));
  destroy(&self);
}
