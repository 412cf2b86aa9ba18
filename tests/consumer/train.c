/* SPDX-License-Identifier: Apache-2.0 */
/* A program as a user writes it: fits y = 3 x - 1 over all ranks. Arguments: rendezvous, rank, world size. */
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(ddp_status status) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s\n", ddp_status_name(status), ddp_last_error());
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  ddp_group_options where;
  check(ddp_group_options_init(&where, sizeof where));
  where.rank = atoi(argv[2]);
  where.world_size = atoi(argv[3]);
  ddp_group *group;
  check(ddp_group_create(argv[1], &where, &group));

  float line[2] = {0, 0}, grad[2]; /* slope, offset */
  const int64_t shape[] = {2};
  ddp_tensor value, gradient;
  check(ddp_tensor_init(&value, line, DDP_F32, 1, shape));
  check(ddp_tensor_init(&gradient, grad, DDP_F32, 1, shape));
  ddp_model *model;
  check(ddp_model_create(group, NULL, &model));
  check(ddp_model_add_parameter(model, "line", &value, &gradient, NULL));
  check(ddp_model_commit(model, NULL));
  ddp_sgd_options sgd;
  check(ddp_sgd_options_init(&sgd, sizeof sgd));
  sgd.rate = 0.5;
  ddp_optimizer *optimizer;
  check(ddp_optimizer_create_sgd(model, &sgd, NULL, &optimizer));

  for (int step = 0; step < 400; step++) {
    /* every rank has its own sample: x differs by rank and step */
    const float x = (float)((step * ddp_group_get_size(group) + ddp_group_get_rank(group)) % 5) / 4;
    const float error = line[0] * x + line[1] - (3 * x - 1);
    check(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    grad[0] = error * x, grad[1] = error;
    check(ddp_model_mark_ready(model, 0, NULL));
    check(ddp_model_end_backward(model, NULL));
    check(ddp_optimizer_step(optimizer, NULL));
  }
  check(ddp_model_check_replicas(model, NULL));
  printf("rank %d of %d: y = %.3f x + %.3f\n", ddp_group_get_rank(group), ddp_group_get_size(group), line[0], line[1]);
  const int good = fabsf(line[0] - 3) < 0.001f && fabsf(line[1] + 1) < 0.001f;
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return good ? 0 : 1;
}
