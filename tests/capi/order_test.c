/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in an order in which they would do nothing, or half of something: they say so. */
#include "support/ranks.h"

typedef struct fixture {
  ddp_group* group;
  ddp_model* model;
  float value[2][3], grad[2][3];
} fixture;

static void open_model(fixture* f, ddp_group* group) {
  memset(f, 0, sizeof *f);
  f->group = group;
  check_defaults(model_options, options);
  options.unused = DDP_UNUSED_ALLOW;
  check_ok(ddp_model_create(f->group, &options, &f->model));
  for (int p = 0; p < 2; p++) {
    const ddp_tensor value = vector_of(f->value[p], DDP_F32, 3), grad = vector_of(f->grad[p], DDP_F32, 3);
    check_ok(ddp_model_add_parameter(f->model, p == 0 ? "weight" : "bias", &value, &grad, NULL));
  }
  check_ok(ddp_model_commit(f->model, NULL));
}

static ddp_optimizer* sgd(const fixture* f, int32_t shard, int32_t in_backward) {
  ddp_optimizer* optimizer = NULL;
  check_defaults(sgd_options, options);
  check_defaults(optimizer_options, shared);
  options.rate = 1;
  shared.shard = shard;
  shared.in_backward = in_backward;
  check_ok(ddp_optimizer_create_sgd(f->model, &options, &shared, &optimizer));
  return optimizer;
}

static void pass(fixture* f, ddp_pass mode) {
  check_ok(ddp_model_begin_backward(f->model, mode));
  for (int p = 0; p < 2; p++) {
    f->grad[p][0] = 2;
    check_ok(ddp_model_mark_ready(f->model, p, NULL));
  }
  check_ok(ddp_model_end_backward(f->model, NULL));
}

check_case(what_comes_after_a_step_within_the_pass_is_refused) {
  fixture f;
  double norm = 0;
  int64_t steps = 0;
  open_model(&f, alone());
  ddp_optimizer* optimizer = sgd(&f, 0, 1);
  pass(&f, DDP_PASS_REDUCE);
  check_number(f.value[0][0], -2);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_scale_grad(f.model, 0.5, NULL), "within the last pass");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_clip_grad_norm(f.model, 0.5, 2, &norm, NULL), "max_norm");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_clip_grad_value(f.model, 0.5, NULL), "clip_value");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_set_rate(optimizer, 0.5), "ddp_optimizer_step first");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_set_parameter_options(optimizer, 0, 0, 0.5),
                   "ddp_optimizer_step first");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_set_loss_scale(optimizer, NULL), "ddp_optimizer_step first");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_begin_backward(f.model, DDP_PASS_LOCAL), "ddp_optimizer_step");
  check_ok(ddp_model_get_grad_norm(f.model, 2, &norm, NULL));
  check_ok(ddp_optimizer_get_step_count(optimizer, &steps));
  check_int(steps, 1);
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_ok(ddp_optimizer_get_step_count(optimizer, &steps));
  check_int(steps, 1);
  check_number(f.value[0][0], -2);
  check_ok(ddp_optimizer_set_rate(optimizer, 0.5));
  check_ok(ddp_model_scale_grad(f.model, 0.5, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "make a pass first");
  pass(&f, DDP_PASS_LOCAL);
  check_ok(ddp_model_scale_grad(f.model, 0.5, NULL)); /* nothing was made within a local pass */
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_number(f.value[0][0], -2.5);
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

check_case(a_step_needs_gradients_of_a_pass_that_ended_well) {
  fixture f;
  open_model(&f, alone());
  ddp_optimizer* optimizer = sgd(&f, 0, 0);
  check_ok(ddp_optimizer_step(optimizer, NULL)); /* without any pass the gradients are the program's own affair */
  check_ok(ddp_optimizer_step(optimizer, NULL));
  pass(&f, DDP_PASS_ACCUMULATE);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "DDP_PASS_REDUCE");
  pass(&f, DDP_PASS_REDUCE);
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "make a pass first");
  for (int mode = DDP_PASS_REDUCE; mode <= DDP_PASS_LOCAL; mode++) {
    check_ok(ddp_model_begin_backward(f.model, (ddp_pass)mode));
    check_ok(ddp_model_mark_ready(f.model, 1, NULL));
    check_ok(ddp_model_abandon_backward(f.model, "a bad batch", NULL));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "ddp_model_zero_grad");
    check_int(ddp_model_was_used(f.model, 0), 1);
  }
  check_number(f.value[0][0], -2);
  pass(&f, DDP_PASS_REDUCE);
  check_ok(ddp_optimizer_step(optimizer, NULL));
  ddp_optimizer_destroy(optimizer);
  ddp_optimizer* other = sgd(&f, 0, 0); /* its first step with the gradients of the pass */
  check_ok(ddp_optimizer_step(other, NULL));
  check_number(f.value[0][0], -6);
  ddp_optimizer_destroy(other);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

check_case(marks_of_an_abandoned_pass_and_of_gradients_that_are_zero_again_do_not_count) {
  fixture f;
  open_model(&f, alone());
  for (int way = 0; way < 3; way++) {
    check_ok(ddp_model_begin_backward(f.model, DDP_PASS_ACCUMULATE));
    check_ok(ddp_model_mark_ready(f.model, 0, NULL));
    if (way == 0)
      check_ok(ddp_model_abandon_backward(f.model, "a bad batch", NULL));
    else
      check_ok(ddp_model_end_backward(f.model, NULL));
    if (way == 1) check_ok(ddp_model_zero_grad(f.model, NULL));
    if (way == 2) { /* what came before an abandoned pass stays */
      check_ok(ddp_model_begin_backward(f.model, DDP_PASS_ACCUMULATE));
      check_ok(ddp_model_mark_ready(f.model, 0, NULL));
      check_ok(ddp_model_abandon_backward(f.model, "a bad batch", NULL));
    }
    check_ok(ddp_model_begin_backward(f.model, DDP_PASS_REDUCE));
    check_ok(ddp_model_mark_ready(f.model, 1, NULL));
    check_ok(ddp_model_end_backward(f.model, NULL));
    check_int(ddp_model_was_used(f.model, 0), way == 2);
    check_int(ddp_model_was_used(f.model, 1), 1);
  }
  /* A pass in which no rank took part leaves the accumulated gradients. */
  check_ok(ddp_model_begin_backward(f.model, DDP_PASS_ACCUMULATE));
  check_ok(ddp_model_mark_ready(f.model, 0, NULL));
  check_ok(ddp_model_end_backward(f.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_skip_backward(f.model, NULL), "no rank contributed");
  check_ok(ddp_model_begin_backward(f.model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(f.model, 1, NULL));
  check_ok(ddp_model_end_backward(f.model, NULL));
  check_int(ddp_model_was_used(f.model, 0), 1);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

check_case(nothing_changes_parameters_while_they_hold_averages) {
  fixture f;
  ddp_ema *ema = NULL, *other = NULL;
  ddp_state saved;
  const double decay = 0.5;
  open_model(&f, alone());
  ddp_optimizer* optimizer = sgd(&f, 0, 0);
  check_ok(ddp_ema_create(f.model, &decay, 1, &ema));
  check_ok(ddp_ema_create(f.model, &decay, 1, &other));
  check_ok(ddp_ema_update(ema, NULL));
  check_ok(ddp_ema_update(other, NULL));
  pass(&f, DDP_PASS_REDUCE);
  check_ok(ddp_ema_swap(ema, 0, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "ddp_ema_swap");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_ema_update(other, NULL), "ddp_ema_swap");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_ema_swap(other, 0, NULL), "ddp_ema_swap");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_average_parameters(f.model, NULL), "ddp_ema_swap");
  check_ok(ddp_state_init(&saved, sizeof saved));
  saved.model = f.model;
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_state_load_file(&saved, "nowhere", NULL, NULL), "ddp_ema_swap");
  check_ok(ddp_ema_swap(ema, 0, NULL));
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_number(f.value[0][0], -2);
  check_ok(ddp_ema_swap(ema, 0, NULL));
  ddp_ema_destroy(ema); /* the parameters stay as they are now */
  pass(&f, DDP_PASS_REDUCE);
  check_ok(ddp_optimizer_step(optimizer, NULL));
  ddp_ema_destroy(other);
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

static void mix(rank* self) {
  fixture f;
  double norm = 0;
  open_model(&f, self->group);
  ddp_optimizer* sharded = sgd(&f, 1, 0);
  for (int step = 0; step < 2; step++) {
    pass(&f, DDP_PASS_REDUCE);
    check_ok(ddp_optimizer_step(sharded, NULL));
  }
  pass(&f, DDP_PASS_REDUCE);
  ddp_optimizer_destroy(sharded); /* this rank has its slices */
  ddp_optimizer* whole = sgd(&f, 0, 0);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(whole, NULL), "shard");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_get_grad_norm(f.model, 2, &norm, NULL), "shard");
  pass(&f, DDP_PASS_REDUCE);
  check_ok(ddp_optimizer_step(whole, NULL));
  check_ok(ddp_model_check_replicas(f.model, NULL));
  ddp_optimizer_destroy(whole);
  ddp_model_destroy(f.model);
}

check_case(slices_of_gradients_are_for_sharded_optimizers_alone) { run_ranks(2, "local://order-shard", mix, NULL); }

static int warnings;

static void count_warnings(void* user_data, ddp_log_level level, const char* text) {
  (void)user_data;
  warnings += level == DDP_LOG_WARNING && strstr(text, "no parameters") != NULL;
}

check_case(a_model_without_parameters_is_noted_in_the_log) {
  ddp_group* group = alone();
  ddp_model* model = NULL;
  check_ok(ddp_set_log(DDP_LOG_WARNING, count_warnings, NULL));
  check_ok(ddp_model_create(group, NULL, &model));
  check_ok(ddp_model_commit(model, NULL));
  check_int(warnings, 1);
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_model_end_backward(model, NULL));
  check_ok(ddp_set_log(DDP_LOG_WARNING, NULL, NULL));
  ddp_model_destroy(model);
  ddp_group_destroy(group);
}
