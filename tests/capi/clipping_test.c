/* SPDX-License-Identifier: Apache-2.0 */
/* What an optimizer does around its rule, and clipping by hand: options, the loss scale, the norm, what is refused. */
#include <math.h>

#include "support/optimizer_fixture.h"

check_fixture_case(the_options_around_the_rule_have_defaults_and_limits, open_fixture(f)) {
  ddp_optimizer_options options;
  memset(&options, 0xff, sizeof options);
  check_ok(ddp_optimizer_options_init(&options, sizeof options));
  check_int(options.struct_size, sizeof options);
  check_int(options.shard, 0);
  check_int(options.in_backward, 0);
  check_int(options.undo, 1);
  check_int(options.master_weights, 0);
  check_int(options.nonfinite, DDP_NONFINITE_KEEP);
  check_number(options.max_norm, 0);
  check_number(options.clip_value, 0);
  ddp_optimizer *optimizer = NULL;
  const struct {
    int32_t shard, in_backward, undo, master_weights, nonfinite, divide_in_step;
    double max_norm, clip_value;
    const char *name;
  } wrong[] = {
      {2, 0, 1, 0, 0, 0, 0, 0, "shard"},     {0, -1, 1, 0, 0, 0, 0, 0, "in_backward"},
      {0, 0, 7, 0, 0, 0, 0, 0, "undo"},      {0, 0, 1, 3, 0, 0, 0, 0, "master_weights"},
      {0, 0, 1, 0, 3, 0, 0, 0, "nonfinite"}, {0, 0, 1, 0, 0, 2, 0, 0, "divide_in_step"},
      {0, 0, 1, 0, 0, 0, -1, 0, "max_norm"}, {0, 0, 1, 0, 0, 0, 0, NAN, "clip_value"},
  };
  options.late_values = 1; /* without shard */
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_adam(f->model, NULL, &options, &optimizer),
                   "late_values");
  options.shard = options.in_backward = 1;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_sgd(f->model, NULL, &options, &optimizer),
                   "in_backward");
  options.late_values = 0, options.reserved = 1;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_sgd(f->model, NULL, &options, &optimizer), "reserved");
  options.reserved = 0;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    options.shard = wrong[i].shard;
    options.in_backward = wrong[i].in_backward;
    options.undo = wrong[i].undo;
    options.master_weights = wrong[i].master_weights;
    options.nonfinite = (ddp_nonfinite)wrong[i].nonfinite;
    options.divide_in_step = wrong[i].divide_in_step;
    options.max_norm = wrong[i].max_norm;
    options.clip_value = wrong[i].clip_value;
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_adam(f->model, NULL, &options, &optimizer),
                     wrong[i].name);
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_sgd(f->model, NULL, &options, &optimizer),
                     wrong[i].name);
  }
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_options_init(NULL, sizeof options));
}

check_fixture_case(a_loss_scale_is_set_asked_for_and_refused, open_fixture(f)) {
  ddp_loss_scale_options scale;
  memset(&scale, 0xff, sizeof scale);
  check_ok(ddp_loss_scale_options_init(&scale, sizeof scale));
  check_number(scale.initial, 65536);
  check_number(scale.growth, 2);
  check_number(scale.backoff, 0.5);
  check_number(scale.minimum, 1);
  check_number(scale.maximum, 16777216);
  check_int(scale.interval, 2000);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_loss_scale_options_init(NULL, sizeof scale));
  ddp_optimizer *optimizer = NULL;
  double number = 0;
  int64_t count = -1;
  check_ok(ddp_optimizer_create_sgd(f->model, NULL, NULL, &optimizer));
  check_ok(ddp_optimizer_get_loss_scale(optimizer, &number));
  check_number(number, 1);
  check_ok(ddp_optimizer_get_grad_norm(optimizer, &number));
  check_number(number, -1);
  scale.initial = 0;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_loss_scale(optimizer, &scale), "initial");
  check_ok(ddp_optimizer_set_loss_scale(optimizer, NULL));
  check_ok(ddp_optimizer_get_loss_scale(optimizer, &number));
  check_number(number, 65536);
  float narrow[2] = {0, 7};
  ddp_tensor to;
  const int64_t shape[1] = {2};
  check_ok(ddp_tensor_init(&to, narrow, DDP_F32, 1, shape));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_copy_loss_scale(optimizer, &to, NULL), "one element");
  to.shape[0] = 1;
  check_ok(ddp_optimizer_copy_loss_scale(optimizer, &to, NULL));
  check_number(narrow[0], 65536);
  check_number(narrow[1], 7);
  to.dtype = DDP_F16;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_copy_loss_scale(optimizer, &to, NULL), "F32 or F64");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_copy_loss_scale(optimizer, NULL, NULL), "tensor");
  f->grad[1][2] = INFINITY;
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_ok(ddp_optimizer_get_skipped_count(optimizer, &count));
  check_int(count, 1);
  check_ok(ddp_optimizer_get_loss_scale(optimizer, &number));
  check_number(number, 32768);
  check_number(f->value[0][0], 1);
  f->grad[1][2] = 2;
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_ok(ddp_optimizer_get_grad_norm(optimizer, &number));
  check_number(number, sqrt(24.0) / 32768);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_get_loss_scale(optimizer, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_get_skipped_count(optimizer, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_get_grad_norm(optimizer, NULL));
  ddp_optimizer_destroy(optimizer);
}

check_fixture_case(gradients_are_clipped_by_norm_and_by_value, open_fixture(f)) {
  double norm = 0;
  check_ok(ddp_model_clip_grad_norm(f->model, 100, 2, &norm, NULL));
  check_number(norm, sqrt(24.0));
  check_number(f->grad[0][0], 2);
  check_ok(ddp_model_clip_grad_norm(f->model, 6, 1, NULL, NULL));
  check_number(f->grad[1][1], 2 * (float)(6 / (12 + 1e-6)));
  check_ok(ddp_model_clip_grad_value(f->model, 0.25, NULL));
  check_number(f->grad[1][1], 0.25);
  f->grad[0][0] = -3;
  check_ok(ddp_model_clip_grad_value(f->model, 2, NULL));
  check_number(f->grad[0][0], -2);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_clip_grad_norm(f->model, 0, 2, &norm, NULL), "max_norm");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_clip_grad_norm(f->model, 1, 3, &norm, NULL), "p is 3");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_clip_grad_value(f->model, NAN, NULL), "limit");
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_ACCUMULATE));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_clip_grad_norm(f->model, 1, 2, &norm, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_clip_grad_value(f->model, 1, NULL));
  check_ok(ddp_model_end_backward(f->model, NULL));
}
