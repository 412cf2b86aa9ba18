/* SPDX-License-Identifier: Apache-2.0 */
/* The public API on two ranks, which are threads of this process: sums, means and passes. */
#include "support/ranks.h"

static void collect(rank *self) {
  const int32_t r = self->index;
  int64_t whole[4] = {r + 1, 10 * r, -r, 7};
  float part[2] = {0, 0}, all[4] = {0, 0, 0, 0}, root[2] = {(float)r, (float)(r + 5)};
  double metric[2] = {r + 0.5, 1};
  const ddp_tensor wholes = vector_of(whole, DDP_I64, 4);
  const ddp_tensor parts = vector_of(part, DDP_F32, 2), alls = vector_of(all, DDP_F32, 4),
                   roots = vector_of(root, DDP_F32, 2);
  check_int(ddp_group_get_rank(self->group), r);
  check_int(ddp_group_get_size(self->group), 2);
  check_int(ddp_group_get_backend(self->group), DDP_BACKEND_LOCAL);
  check_ok(ddp_group_barrier(self->group));
  check_ok(ddp_group_all_reduce(self->group, &wholes, DDP_SUM, NULL));
  check_int(whole[0], 3);
  check_int(whole[1], 10);
  check_int(whole[2], -1);
  check_int(whole[3], 14);
  check_ok(ddp_group_broadcast(self->group, &roots, 1, NULL));
  check_number(root[0], 1);
  check_number(root[1], 6);
  part[0] = (float)(r + 1), part[1] = (float)(-r);
  check_ok(ddp_group_all_gather(self->group, &parts, &alls, NULL));
  check_number(all[0], 1);
  check_number(all[1], 0);
  check_number(all[2], 2);
  check_number(all[3], -1);
  for (int i = 0; i < 4; i++) all[i] = (float)(i + r);
  check_ok(ddp_group_reduce_scatter(self->group, &alls, &parts, DDP_AVERAGE, NULL));
  check_number(part[0], 2 * r + 0.5);
  check_number(part[1], 2 * r + 1.5);
  check_ok(ddp_group_reduce_metrics(self->group, metric, 2, DDP_SUM));
  check_number(metric[0], 2);
  check_number(metric[1], 2);
}

check_case(collectives_agree_with_arithmetic) { run_ranks(2, "local://collect", collect, NULL); }

static void train(rank *self) {
  const int32_t r = self->index;
  float value[2] = {(float)r, (float)r}, grad[2] = {0, 0}, running[1] = {(float)r};
  ddp_tensor owned;
  int64_t hash = 0;
  const ddp_tensor values = vector_of(value, DDP_F32, 2), grads = vector_of(grad, DDP_F32, 2),
                   buffer = vector_of(running, DDP_F32, 1);
  float other[3] = {1, 2, 3};
  const ddp_tensor others = vector_of(other, DDP_F32, 3);
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_parameter(model, "weight", &values, &grads, NULL));
  check_ok(ddp_model_add_parameter(model, "bias", &others, NULL, NULL));
  check_ok(ddp_model_add_buffer(model, "running", &buffer, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_number(value[0], 0); /* rank 0's values go to every rank */
  check_number(running[0], 0);
  memset(&owned, 0, sizeof owned);
  check_ok(ddp_model_get_grad(model, 1, &owned));
  float *bias_grad = owned.data;
  for (int step = 0; bias_grad != NULL && step < 4; step++) {
    check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    bias_grad[0] = (float)(r + 1), bias_grad[1] = (float)(4 * r), bias_grad[2] = -1;
    check_ok(ddp_model_mark_ready(model, 1, NULL));
    grad[0] = (float)(step + r), grad[1] = (float)(2 * r);
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_ok(ddp_model_end_backward(model, NULL));
    check_number(grad[0], step + 0.5);
    check_number(grad[1], 1);
    check_number(bias_grad[0], 1.5);
    check_number(bias_grad[1], 2);
    check_number(bias_grad[2], -1);
  }
  check_ok(ddp_model_check_replicas(model, NULL));
  check_ok(ddp_model_get_hash(model, &hash));
  ((int64_t *)self->data)[r] = hash;
  running[0] = (float)(r + 10);
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_check_replicas(model, NULL), "running");
  check_ok(ddp_model_sync_buffers(model, 1, NULL));
  check_number(running[0], 11);
  check_ok(ddp_model_check_replicas(model, NULL));
  ddp_model_destroy(model);
}

check_case(gradients_are_averaged_and_replicas_stay_equal) {
  int64_t hashes[2] = {1, 2};
  run_ranks(2, "local://train", train, hashes);
  check_int(hashes[0], hashes[1]);
}

check_case(a_missing_rank_is_named_in_time) {
  ddp_group *group = NULL;
  check_defaults(group_options, options);
  options.rank = 0;
  options.world_size = 2;
  options.rendezvous_timeout_ms = 200;
  check_error_text(DDP_ERROR_TIMED_OUT, ddp_group_create("local://lonely", &options, &group), "1");
  check_true(group == NULL);
  run_ranks(2, "local://lonely", collect, NULL); /* the place is free again */
}
