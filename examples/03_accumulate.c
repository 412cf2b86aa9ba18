/* SPDX-License-Identifier: Apache-2.0 */
/* Example 3: gradient accumulation. A batch that does not fit in memory is taken in parts; only the last part communicates.
 *
 *   ddprun -n 2 03_accumulate
 *
 * Fits y = 2 a - 3 b + 1 by least squares. Each step is taken twice: with the whole batch at once, and in four parts that
 * add to the same gradient. The data are small integers, so that sums are exact and both gradients must be equal to the bit.
 */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 3, BATCH = 64, PARTS = 4, STEPS = 60 };

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* Sample `index` of the data set, the same on every rank: two features and a constant, and the answer. */
static float make_sample(int64_t index, float features[PARAMETERS]) {
  features[0] = (float)(index * 7 % 5 - 2);
  features[1] = (float)(index * 3 % 7 - 3);
  features[2] = 1.0F;
  return 2.0F * features[0] - 3.0F * features[1] + 1.0F;
}

/* Add the gradient of samples `first` to `first + count` of this rank to `gradient`. Returns the sum of squared errors. */
static double backward(const float *weight, float *gradient, int64_t rank, int64_t first, int64_t count) {
  double loss = 0;
  for (int64_t i = first; i < first + count; ++i) {
    float features[PARAMETERS];
    float error = -make_sample(rank * BATCH + i, features);
    for (int p = 0; p < PARAMETERS; ++p) error += weight[p] * features[p];
    for (int p = 0; p < PARAMETERS; ++p) gradient[p] += error * features[p] / BATCH;
    loss += (double)error * (double)error;
  }
  return loss;
}

/* One batch in `parts` parts. The calls are the same for every part; only the mode decides whether the ranks communicate. */
static double run_batch(ddp_model *model, const float *weight, float *gradient, int rank, int parts) {
  double loss = 0;
  CHECK(ddp_model_zero_grad(model, NULL));
  for (int part = 0; part < parts; ++part) {
    const int last = part == parts - 1;
    CHECK(ddp_model_begin_backward(model, last ? DDP_PASS_REDUCE : DDP_PASS_ACCUMULATE));
    loss += backward(weight, gradient, rank, (int64_t)part * BATCH / parts, BATCH / parts);
    CHECK(ddp_model_mark_ready(model, 0, NULL));
    CHECK(ddp_model_end_backward(model, NULL));
  }
  return loss;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int rank = ddp_group_get_rank(group);

  /* The gradient is an array of ours this time. The mean is in it after the pass. */
  float weight[PARAMETERS] = {0};
  float gradient[PARAMETERS] = {0};
  ddp_model *model = NULL;
  CHECK(ddp_model_create(group, NULL, &model));
  CHECK(ddp_model_add_array(model, "weight", weight, gradient, PARAMETERS, NULL));
  CHECK(ddp_model_commit(model, NULL));

  ddp_sgd_options options;
  CHECK(ddp_sgd_options_init(&options, sizeof options));
  options.rate = 0.1;
  ddp_optimizer *optimizer = NULL;
  CHECK(ddp_optimizer_create_sgd(model, &options, NULL, &optimizer));

  int different = 0;
  for (int step = 0; step < STEPS; ++step) {
    float whole[PARAMETERS];
    run_batch(model, weight, gradient, rank, 1);
    memcpy(whole, gradient, sizeof whole);
    double sums[2] = {run_batch(model, weight, gradient, rank, PARTS), BATCH};
    if (step == 0) different = memcmp(whole, gradient, sizeof whole) != 0; /* exact while the weights are integers */
    CHECK(ddp_optimizer_step(optimizer, NULL));
    CHECK(ddp_group_reduce_metrics(group, sums, 2, DDP_SUM)); /* sum first, divide afterwards */
    if (rank == 0 && step % 20 == 0) printf("step %2d: loss %.6f\n", step, sums[0] / sums[1]);
  }

  ddp_model_stats stats = {.struct_size = sizeof stats};
  CHECK(ddp_model_get_stats(model, &stats));
  if (rank == 0) {
    printf("weights: %.3f %.3f %.3f\n", (double)weight[0], (double)weight[1], (double)weight[2]);
    printf("%d passes were opened, %lld of them communicated\n", STEPS * (1 + PARTS), (long long)stats.passes);
    printf("gradient in %d parts: %s the gradient at once\n", PARTS, different ? "DIFFERS from" : "equal to");
  }
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return different;
}
