/* SPDX-License-Identifier: Apache-2.0 */
/* Example 5: a learning-rate schedule (linear scaling, warm-up, cosine), clipping, and an optimizer that is shared out.
 *
 *   ddprun -n 4 05_schedule
 *
 * Each rank has 32 samples in a batch, so the global batch grows with the number of ranks, and the same samples take fewer
 * steps. Linear scaling (Goyal et al.: "Accurate, large minibatch SGD", 2017): multiply the rate by the number of ranks, and
 * warm up to it, because the first steps would be too long. The schedule is a function of the step that you write;
 * ddp_optimizer_set_rate gives its value to libddp, which saves it.
 *
 * The optimizer is sharded: every rank keeps the momentum of its part of the parameters only, updates that part, and gives
 * the values to the others. Parameters are in ddp_group_alloc memory, so ranks of one host write them straight to each
 * other.
 */
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 1024, BATCH = 32, SAMPLES = 32 * 1200 };
static const double kRateOfOneRank = 0.002;

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* The schedule: up in a straight line, then down along a cosine. */
static double rate_at(int step, int steps, int32_t ranks) {
  const double top = kRateOfOneRank * ranks;
  const int warm_up = steps / 10;
  if (step < warm_up) return top * (step + 1) / warm_up;
  return top * 0.5 * (1 + cos(3.14159265358979 * (step - warm_up) / (steps - warm_up)));
}

static uint64_t random_state;
static float random_number(void) {
  random_state = random_state * 6364136223846793005U + 1442695040888963407U;
  return (float)(random_state >> 40) / 8388608.0F - 1.0F;
}

/* A linear function of sparse inputs, to be found again: weight i is sin(i). Returns the loss of a batch and adds to the
 * gradient. */
static double learn(const float *weight, float *grad) {
  double loss = 0;
  for (int sample = 0; sample < BATCH; ++sample) {
    int place[16];
    float input[16], error = 0;
    for (int k = 0; k < 16; ++k) {
      input[k] = random_number();
      place[k] = (int)((random_number() + 1) * (FEATURES / 2)) % FEATURES;
      error += input[k] * (weight[place[k]] - (float)sin(place[k]));
    }
    loss += 0.5 * error * error / BATCH;
    for (int k = 0; k < 16; ++k) grad[place[k]] += error * input[k] * FEATURES / (16.0F * BATCH);
  }
  return loss;
}

int main(void) {
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int32_t rank = ddp_group_get_rank(group), ranks = ddp_group_get_size(group);
  random_state = (uint64_t)rank + 1; /* every rank has samples of its own */

  void *weight = NULL;
  CHECK(ddp_group_alloc(group, FEATURES * sizeof(float), &weight));
  ddp_tensor grad;
  ddp_model *model = NULL;
  CHECK(ddp_model_create(group, NULL, &model));
  CHECK(ddp_model_add_array(model, "weight", weight, NULL, FEATURES, NULL));
  CHECK(ddp_model_commit(model, NULL));
  CHECK(ddp_model_get_grad(model, 0, &grad));

  ddp_sgd_options options;
  CHECK(ddp_sgd_options_init(&options, sizeof options));
  ddp_optimizer_options shared;
  CHECK(ddp_optimizer_options_init(&shared, sizeof shared));
  options.momentum = 0.9;
  shared.shard = 1;
  shared.max_norm = 100;                 /* longer gradients are scaled down to this norm */
  shared.nonfinite = DDP_NONFINITE_SKIP; /* and those with a NaN are left out, on all ranks */
  ddp_optimizer *optimizer = NULL;
  CHECK(ddp_optimizer_create_sgd(model, &options, &shared, &optimizer));

  const int steps = SAMPLES / BATCH / ranks;
  for (int step = 0; step < steps; ++step) {
    CHECK(ddp_optimizer_set_rate(optimizer, rate_at(step, steps, ranks)));
    CHECK(ddp_model_zero_grad(model, NULL));
    CHECK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    double sums[1] = {learn(weight, grad.data)};
    CHECK(ddp_model_mark_ready(model, 0, NULL));
    CHECK(ddp_model_end_backward(model, NULL));
    CHECK(ddp_optimizer_step(optimizer, NULL)); /* collective, because the optimizer is shared out */
    if (step % (steps / 5) != 0 && step != steps - 1) continue;
    double norm = 0;
    CHECK(ddp_optimizer_get_grad_norm(optimizer, &norm));
    CHECK(ddp_group_reduce_metrics(group, sums, 1, DDP_AVERAGE));
    if (rank == 0)
      printf("step %3d: rate %.5f  loss %8.5f  norm of the gradient %7.2f\n", step, rate_at(step, steps, ranks), sums[0],
             norm);
  }
  CHECK(ddp_model_check_replicas(model, NULL)); /* all ranks hold the same weights, or this names who does not */
  double mistake = 0;
  for (int i = 0; i < FEATURES; ++i) mistake += fabs(((float *)weight)[i] - sin(i)) / FEATURES;
  if (rank == 0) printf("mean mistake of the weights: %.4f%s\n", mistake, mistake < 0.1 ? "" : ", which is too much");

  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
  CHECK(ddp_group_free(group, weight));
  ddp_group_destroy(group);
  return mistake < 0.1 ? 0 : 1;
}
