/* SPDX-License-Identifier: Apache-2.0 */
/* Local passes and the mean of the parameters, through the C API. Ranks are threads. */
#include "support/ranks.h"

check_ranks_case(local_steps_and_their_mean, 2) {
  float value[3] = {1, 2, 3}, grad[3];
  ddp_optimizer *optimizer = NULL;
  const ddp_tensor values = vector_of(value, DDP_F32, 3), grads = vector_of(grad, DDP_F32, 3);
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_parameter(model, "w", &values, &grads, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_average_parameters(model, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_defaults(sgd_options, options);
  options.rate = 0.5;
  check_ok(ddp_optimizer_create_sgd(model, &options, NULL, &optimizer));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_begin_backward(model, (ddp_pass)4));
  for (int step = 0; step < 2; step++) {
    check_ok(ddp_model_begin_backward(model, DDP_PASS_LOCAL));
    check_error(DDP_ERROR_INVALID_STATE, ddp_model_average_parameters(model, NULL));
    for (int i = 0; i < 3; i++) grad[i] = (float)(4 * self->index + i);
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_ok(ddp_model_end_backward(model, NULL));
    check_int(ddp_model_was_used(model, 0), 1);
    check_number(grad[2], 4 * self->index + 2); /* it was not reduced */
    check_ok(ddp_optimizer_step(optimizer, NULL));
  }
  check_number(value[1], 1 - 4 * self->index);
  check_error(DDP_ERROR_MISMATCH, ddp_model_check_replicas(model, NULL));
  check_ok(ddp_model_average_parameters(model, NULL));
  check_ok(ddp_model_check_replicas(model, NULL));
  for (int i = 0; i < 3; i++) check_number(value[i], i + 1 - (2 + i));
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
}
