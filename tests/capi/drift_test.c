/* SPDX-License-Identifier: Apache-2.0 */
/* The model options check_every and drift on three ranks, which are threads; optimizers and averages made through the API
 * take part. */
#include "support/ranks.h"

static ddp_model *make_model(rank *self, ddp_drift drift, float *value, int64_t count) {
  const ddp_tensor tensor = vector_of(value, DDP_F32, count);
  check_defaults(model_options, options);
  check_int(options.check_every, 0);
  check_int(options.drift, DDP_DRIFT_REPORT);
  options.check_every = 2;
  options.drift = drift;
  ddp_model *model = new_model(self->group, &options);
  check_ok(ddp_model_add_parameter(model, "weight", &tensor, NULL, NULL));
  check_ok(ddp_model_commit(model, NULL));
  return model;
}

static ddp_status pass(ddp_model *model) {
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  return ddp_model_end_backward(model, NULL);
}

check_ranks_case(drift_is_reported_on_every_rank, 3) {
  float value[4] = {1, 2, 3, 4};
  ddp_model *model = make_model(self, DDP_DRIFT_REPORT, value, 4);
  check_ok(pass(model));
  if (self->index == 2) value[3] = 5;
  check_error_text(DDP_ERROR_MISMATCH, pass(model), "\"weight\" is different on rank 2");
  check_ok(ddp_group_status(self->group));
  check_ok(pass(model));
  ddp_model_destroy(model);
}

static void ignore_log(void *user_data, ddp_log_level level, const char *text) { (void)user_data, (void)level, (void)text; }

static void resend(rank *self) {
  float value[4] = {1, 2, 3, 4};
  const double decay = 0.5;
  double rate = 0;
  ddp_model_stats stats;
  ddp_optimizer *optimizer = NULL;
  ddp_ema *ema = NULL;
  ddp_model *model = make_model(self, DDP_DRIFT_RESEND, value, 4);
  check_ok(ddp_optimizer_create_adam(model, NULL, NULL, &optimizer));
  check_ok(ddp_ema_create(model, &decay, 1, &ema));
  check_ok(pass(model));
  check_ok(ddp_optimizer_step(optimizer, NULL));
  if (self->index == 0) {
    value[3] = 5;
    check_ok(ddp_optimizer_set_rate(optimizer, 0.25));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL),
                     "make a pass first"); /* drift that would be silent */
  }
  check_ok(pass(model));
  check_ok(ddp_model_check_replicas(model, NULL));
  check_ok(ddp_optimizer_get_rate(optimizer, &rate));
  check_number(rate, 0.001); /* the majority's */
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  check_ok(ddp_model_get_stats(model, &stats));
  check_int(stats.checks, 1);
  check_int(stats.repairs, 1);
  ddp_optimizer_destroy(optimizer); /* does not take part any more */
  check_ok(pass(model));
  if (self->index == 1) value[0] = 9;
  check_ok(pass(model));
  check_ok(ddp_model_check_replicas(model, NULL));
  ddp_ema_destroy(ema);
  ddp_model_destroy(model);
}

check_case(drift_is_repaired_from_the_majority) {
  check_ok(ddp_set_log(DDP_LOG_WARNING, ignore_log, NULL));
  run_ranks(3, "local://drift-resend", resend, NULL);
  check_ok(ddp_set_log(DDP_LOG_WARNING, NULL, NULL));
}

/* The advice of ddp_model_check_replicas fits what differs. */
check_ranks_case(the_advice_fits_what_differs, 3) {
  float value[4] = {1, 2, 3, 4}, mean[2] = {0, 0};
  const ddp_tensor tensor = vector_of(value, DDP_F32, 4), buffer = vector_of(mean, DDP_F32, 2);
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_parameter(model, "weight", &tensor, NULL, NULL));
  check_ok(ddp_model_add_buffer(model, "mean", &buffer, NULL));
  check_ok(ddp_model_commit(model, NULL));
  if (self->index == 2) mean[1] = 7;
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_check_replicas(model, NULL), "buffer \"mean\" is different on rank 2");
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_check_replicas(model, NULL),
                   "only buffers differ; ddp_model_sync_buffers on every rank");
  check_true(strstr(ddp_last_error(), "checkpoint") == NULL);
  check_ok(ddp_model_sync_buffers(model, 0, NULL));
  check_ok(ddp_model_check_replicas(model, NULL));
  mean[0] = (float)self->index; /* both differ: only a load helps */
  if (self->index == 1) value[0] = 5;
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_check_replicas(model, NULL), "parameter \"weight\" is different on rank 1");
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_check_replicas(model, NULL), "load a checkpoint on every rank");
  ddp_model_destroy(model);
}

check_alone_case(wrong_options_are_refused) {
  ddp_model *model = NULL;
  check_defaults(model_options, options);
  options.check_every = -1;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, &options, &model), "check_every");
  options.check_every = 1;
  options.drift = (ddp_drift)2;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, &options, &model), "drift");
}
