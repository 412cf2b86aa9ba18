/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over one gradient of 25 MiB with each hook in turn: milliseconds and bytes sent.
 *
 *   ddprun -n 4 --no-prefix bench.hook [staged | zero-copy] [shm | gloo]
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

enum { SIDE = 2560, WARM = 3, ROUNDS = 31 };

static int32_t average(void *user_data, ddp_bucket *bucket) {
  ddp_tensor whole;
  ddp_group *group = NULL;
  (void)user_data;
  if (ddp_bucket_get_contents(bucket, &whole) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
  return ddp_group_all_reduce(group, &whole, DDP_AVERAGE, NULL) != DDP_OK;
}

typedef struct hooked {
  const char *name;
  ddp_hook_fn fn;
  int32_t wire;
  int32_t rank; /* of PowerSGD */
  ddp_model *model;
  double ms[ROUNDS];
} hooked;

static void build(hooked *h, ddp_group *group, int staged) {
  const int64_t shape[2] = {SIDE, SIDE};
  ddp_powersgd_options options;
  ddp_model_options model_options;
  ddp_tensor value, grad;
  CHECK(ddp_powersgd_options_init(&options, sizeof options));
  options.rank = h->rank;
  options.start_pass = 0;
  CHECK(ddp_tensor_init(&value, calloc(SIDE * SIDE, 4), DDP_F32, 2, shape));
  CHECK(ddp_tensor_init(&grad, calloc(SIDE * SIDE, 4), DDP_F32, 2, shape));
  for (int64_t i = 0; i < SIDE * SIDE; ++i) ((float *)grad.data)[i] = (float)(i % 4093) * 1e-3f;
  CHECK(ddp_model_options_init(&model_options, sizeof model_options));
  model_options.wire = (ddp_dtype)h->wire;
  CHECK(ddp_model_create(group, &model_options, &h->model));
  CHECK(ddp_model_add_parameter(h->model, "w", &value, staged ? &grad : NULL, NULL));
  if (h->fn != NULL) CHECK(ddp_model_set_hook(h->model, h->fn, h->rank > 0 ? &options : NULL, NULL));
  CHECK(ddp_model_commit(h->model, NULL));
}

static double pass_ms(hooked *h, ddp_group *group) {
  CHECK(ddp_group_barrier(group));
  const double begin = now_us();
  CHECK(ddp_model_begin_backward(h->model, DDP_PASS_REDUCE));
  CHECK(ddp_model_mark_ready(h->model, 0, NULL));
  CHECK(ddp_model_end_backward(h->model, NULL));
  return (now_us() - begin) * 1e-3;
}

int main(int argc, char **argv) {
  hooked hooks[] = {{"none", NULL, 0, 0, NULL, {0}},
                    {"wire BF16", NULL, DDP_BF16, 0, NULL, {0}},
                    {"wire F16", NULL, DDP_F16, 0, NULL, {0}},
                    {"a callback that averages", average, 0, 0, NULL, {0}},
                    {"PowerSGD of rank 1", ddp_hook_powersgd, 0, 1, NULL, {0}},
                    {"PowerSGD of rank 4", ddp_hook_powersgd, 0, 4, NULL, {0}}};
  const int number = (int)(sizeof hooks / sizeof *hooks);
  const int staged = argc <= 1 || strcmp(argv[1], "zero-copy") != 0;
  ddp_group_options options;
  ddp_group *group = NULL;
  CHECK(ddp_group_options_init(&options, sizeof options));
  if (argc > 2) options.backend = strcmp(argv[2], "gloo") == 0 ? DDP_BACKEND_GLOO : DDP_BACKEND_SHM;
  CHECK(ddp_group_create(NULL, &options, &group));
  for (int k = 0; k < number; ++k) build(&hooks[k], group, staged);
  for (int round = -WARM; round < ROUNDS; ++round)
    for (int k = 0; k < number; ++k) {
      const double ms = pass_ms(&hooks[k], group);
      if (round >= 0) hooks[k].ms[round] = ms;
    }
  for (int k = 0; k < number; ++k) {
    ddp_model_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK(ddp_model_get_stats(hooks[k].model, &stats));
    if (ddp_group_get_rank(group) == 0)
      printf("%-26s %8.2f ms %12lld bytes sent by rank 0\n", hooks[k].name, median(hooks[k].ms, ROUNDS),
             (long long)stats.sent_bytes);
    ddp_model_destroy(hooks[k].model);
  }
  ddp_group_destroy(group);
  return 0;
}
