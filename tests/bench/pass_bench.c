/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a pass without the computation.
 *   mark:     ddp_model_mark_ready of a gradient that does not complete a bucket
 *   tiny:     a whole pass over 1,000 parameters of 16 floats, nothing computed
 *   overlap:  a backward of 24 gradients of 1 MiB, each "computed" for as long as the reduction of 1 MiB takes; the share of
 *             the communication that the computation hides
 *
 *   bench.pass                  one rank
 *   ddprun -n 2 bench.pass      two, and so on
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

enum { TINY = 1000, LARGE = 24, ROUNDS = 101 };

static ddp_model *make_model(ddp_group *group, int parameters, int64_t count, int64_t bucket_bytes) {
  ddp_model_options options;
  ddp_model *model = NULL;
  CHECK(ddp_model_options_init(&options, sizeof options));
  if (bucket_bytes > 0) options.first_bucket_bytes = options.bucket_bytes = bucket_bytes;
  CHECK(ddp_model_create(group, &options, &model));
  for (int p = 0; p < parameters; ++p) {
    char name[32];
    ddp_tensor value;
    snprintf(name, sizeof name, "p%d", p);
    CHECK(ddp_tensor_init(&value, calloc((size_t)count, 4), DDP_F32, 1, &count));
    CHECK(ddp_model_add_parameter(model, name, &value, NULL, NULL));
  }
  CHECK(ddp_model_commit(model, NULL));
  return model;
}

static void bench_mark(ddp_group *group, int32_t rank) {
  ddp_model *model = make_model(group, TINY, 16, 0);
  double ns[ROUNDS];
  for (int r = 0; r < ROUNDS; ++r) {
    CHECK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    const double begin = now_us();
    for (int32_t p = TINY - 1; p > 0; --p) (void)ddp_model_mark_ready(model, p, NULL);
    ns[r] = (now_us() - begin) * 1e3 / (TINY - 1);
    CHECK(ddp_model_mark_ready(model, 0, NULL));
    CHECK(ddp_model_end_backward(model, NULL));
  }
  if (rank == 0) printf("mark_ready that closes no bucket: %.0f ns\n", median(ns, ROUNDS));
  ddp_model_destroy(model);
}

static void bench_tiny(ddp_group *group, int32_t rank) {
  ddp_model *model = make_model(group, TINY, 16, 0);
  double us[ROUNDS];
  for (int r = 0; r < ROUNDS; ++r) {
    CHECK(ddp_group_barrier(group));
    const double begin = now_us();
    CHECK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (int32_t p = TINY; p-- > 0;) CHECK(ddp_model_mark_ready(model, p, NULL));
    CHECK(ddp_model_end_backward(model, NULL));
    us[r] = now_us() - begin;
  }
  if (rank == 0) printf("pass over %d parameters of 16 floats: %.3f ms\n", TINY, median(us, ROUNDS) / 1e3);
  ddp_model_destroy(model);
}

/* Arithmetic that leaves the memory alone, so that it competes for the core and for nothing else. */
static void compute_for(double us) {
  volatile double sink = 1;
  const double end = now_us() + us;
  while (now_us() < end)
    for (int i = 0; i < 200; ++i) sink = sink * 1.0000001 + 1e-9;
}

static double overlap_pass(ddp_model *model, double compute_us) {
  const double begin = now_us();
  CHECK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  for (int32_t p = LARGE; p-- > 0;) {
    compute_for(compute_us);
    CHECK(ddp_model_mark_ready(model, p, NULL));
  }
  CHECK(ddp_model_end_backward(model, NULL));
  return now_us() - begin;
}

static void bench_overlap(ddp_group *group, int32_t rank) {
  ddp_model *model = make_model(group, LARGE, 1 << 18, 1 << 20);
  double alone[ROUNDS], both[ROUNDS];
  for (int r = 0; r < ROUNDS; ++r) {
    CHECK(ddp_group_barrier(group));
    alone[r] = overlap_pass(model, 0);
  }
  double communication = median(alone, ROUNDS);
  CHECK(ddp_group_reduce_metrics(group, &communication, 1, DDP_MAX));
  const double compute_us = communication / LARGE;
  for (int r = 0; r < ROUNDS; ++r) {
    CHECK(ddp_group_barrier(group));
    both[r] = overlap_pass(model, compute_us);
  }
  const double together = median(both, ROUNDS), exposed = together - compute_us * LARGE;
  ddp_model_stats stats;
  stats.struct_size = sizeof stats;
  CHECK(ddp_model_get_stats(model, &stats));
  char plan[64] = "";
  CHECK(ddp_model_describe_plan(model, plan, sizeof plan, NULL));
  plan[strcspn(plan, "\n")] = 0;
  if (rank == 0)
    printf("overlap (%s): communication alone %.2f ms, computation %.2f ms, together %.2f ms: %.0f %% hidden\n", plan,
           communication / 1e3, compute_us * LARGE / 1e3, together / 1e3, 100 * (1 - exposed / communication));
  ddp_model_destroy(model);
}

int main(void) {
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int32_t rank = ddp_group_get_rank(group);
  bench_mark(group, rank);
  bench_tiny(group, rank);
  if (ddp_group_get_size(group) > 1) bench_overlap(group, rank);
  CHECK(ddp_group_barrier(group));
  ddp_group_destroy(group);
  return 0;
}
