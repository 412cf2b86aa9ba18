/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of README.md: one small training, written the same in every language, that must give the same bits.
 *
 *   ddprun -n 2 same_bits
 *
 * Only + - * / and comparisons, in the order written here; no library of mathematics, no fused multiply-add.
 * Tested by bindings/same_bits_test.py.
 */
#include <ddp/experimental.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 8, HIDDEN = 16, OUTPUTS = 4, SAMPLES = 96, BATCH = 8, EPOCHS = 10, MOST_PARTS = 8 };

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* From -1 to below 1, exact in F32. */
static float next_number(uint32_t *state) {
  *state = *state * 1664525U + 1013904223U;
  return ((float)(*state >> 16) - 32768.0F) / 32768.0F;
}

typedef struct network {
  float w1[HIDDEN * INPUTS], b1[HIDDEN], w2[OUTPUTS * HIDDEN], b2[OUTPUTS];
  float w1_grad[HIDDEN * INPUTS], w2_grad[OUTPUTS * HIDDEN]; /* ours */
  float *b1_grad, *b2_grad;                                  /* libddp's */
  float x[SAMPLES][INPUTS], t[SAMPLES][OUTPUTS];
} network;

static void start(network *net, int32_t rank) {
  uint32_t state = 1;
  for (int s = 0; s < SAMPLES; ++s) {
    for (int i = 0; i < INPUTS; ++i) net->x[s][i] = next_number(&state);
    for (int o = 0; o < OUTPUTS; ++o) net->t[s][o] = next_number(&state) * 0.5F;
  }
  state = 7U + (uint32_t)rank; /* commit sends rank 0's weights to all ranks */
  for (int i = 0; i < HIDDEN * INPUTS; ++i) net->w1[i] = next_number(&state) * 0.5F;
  for (int i = 0; i < OUTPUTS * HIDDEN; ++i) net->w2[i] = next_number(&state) * 0.5F;
}

/* One sample, forward and backward: adds to the gradients, returns the squared error. */
static double learn(network *net, int64_t sample, float scale) {
  float h[HIDDEN], d[OUTPUTS];
  double loss = 0;
  for (int i = 0; i < HIDDEN; ++i) {
    h[i] = net->b1[i];
    for (int j = 0; j < INPUTS; ++j) h[i] = h[i] + net->w1[i * INPUTS + j] * net->x[sample][j];
    if (h[i] < 0) h[i] = 0;
  }
  for (int o = 0; o < OUTPUTS; ++o) {
    float y = net->b2[o];
    for (int i = 0; i < HIDDEN; ++i) y = y + net->w2[o * HIDDEN + i] * h[i];
    const float error = y - net->t[sample][o];
    loss = loss + (double)error * (double)error;
    d[o] = error * scale;
  }
  for (int o = 0; o < OUTPUTS; ++o) {
    net->b2_grad[o] = net->b2_grad[o] + d[o];
    for (int i = 0; i < HIDDEN; ++i) net->w2_grad[o * HIDDEN + i] = net->w2_grad[o * HIDDEN + i] + d[o] * h[i];
  }
  for (int i = 0; i < HIDDEN; ++i) {
    float back = 0;
    for (int o = 0; o < OUTPUTS; ++o) back = back + net->w2[o * HIDDEN + i] * d[o];
    if (!(h[i] > 0)) back = 0;
    net->b1_grad[i] = net->b1_grad[i] + back;
    for (int j = 0; j < INPUTS; ++j) {
      net->w1_grad[i * INPUTS + j] = net->w1_grad[i * INPUTS + j] + back * net->x[sample][j];
    }
  }
  return loss;
}

static void lend(ddp_model *model, const char *name, float *value, float *grad, int32_t ndim, const int64_t *shape) {
  ddp_tensor values, grads;
  CHECK(ddp_tensor_init(&values, value, DDP_F32, ndim, shape));
  if (grad != NULL) CHECK(ddp_tensor_init(&grads, grad, DDP_F32, ndim, shape));
  CHECK(ddp_model_add_parameter(model, name, &values, grad == NULL ? NULL : &grads, NULL));
}

static ddp_model *lend_all(ddp_group *group, network *net) {
  const int64_t w1[2] = {HIDDEN, INPUTS}, w2[2] = {OUTPUTS, HIDDEN};
  ddp_model_options options;
  CHECK(ddp_model_options_init(&options, sizeof options));
  options.first_bucket_bytes = 256;
  options.bucket_bytes = 512;
  ddp_model *model = NULL;
  CHECK(ddp_model_create(group, &options, &model));
  lend(model, "w1", net->w1, net->w1_grad, 2, w1);
  lend(model, "b1", net->b1, NULL, 1, w1);
  lend(model, "w2", net->w2, net->w2_grad, 2, w2);
  lend(model, "b2", net->b2, NULL, 1, w2);
  CHECK(ddp_model_commit(model, NULL));
  ddp_tensor grad;
  CHECK(ddp_model_get_grad(model, 1, &grad));
  net->b1_grad = grad.data;
  CHECK(ddp_model_get_grad(model, 3, &grad));
  net->b2_grad = grad.data;
  return model;
}

/* The share of one part of a step, in two passes, of which only the second of the last part communicates. */
static double work(network *net, ddp_model *model, const int64_t *chosen, int64_t count, ddp_pass last_pass) {
  double loss = 0;
  for (int half = 0; half < 2; ++half) {
    CHECK(ddp_model_begin_backward(model, half == 0 ? DDP_PASS_ACCUMULATE : last_pass));
    const int64_t first = half == 0 ? 0 : count / 2, last = half == 0 ? count / 2 : count;
    for (int64_t i = first; i < last; ++i) loss = loss + learn(net, chosen[i], 1.0F / (float)count);
    for (int32_t index = 3; index >= 0; --index) CHECK(ddp_model_mark_ready(model, index, NULL));
    CHECK(ddp_model_end_backward(model, NULL));
  }
  return loss;
}

static void finish_step(ddp_model *model, ddp_optimizer *sgd, ddp_ema *ema) {
  double norm = 0;
  CHECK(ddp_model_get_grad_norm(model, 2, &norm, NULL));
  if (norm > 0.5) CHECK(ddp_model_scale_grad(model, 0.5 / norm, NULL));
  CHECK(ddp_optimizer_step(sgd, NULL));
  CHECK(ddp_ema_update(ema, NULL));
}

/* Sums of loss and of samples in the last epoch. */
static void train(ddp_group *group, network *net, ddp_model *model, ddp_optimizer *sgd, ddp_ema *ema, double *sums) {
  ddp_virtual_ranks mine;
  mine.struct_size = sizeof mine;
  CHECK(ddp_group_get_virtual_ranks(group, &mine));
  if (mine.count > MOST_PARTS) exit(1);
  ddp_sampler sampler;
  CHECK(ddp_sampler_init(&sampler, sizeof sampler));
  sampler.dataset_size = SAMPLES;
  sampler.seed = 3;
  sampler.size = mine.total;
  int64_t share = 0;
  CHECK(ddp_sampler_get_count(&sampler, &share));
  for (int64_t epoch = 0; epoch < EPOCHS; ++epoch) {
    for (int i = 0; i < 2 * mine.count; ++i) sums[i] = 0;
    for (int64_t first = 0; first < share; first += BATCH) {
      int64_t chosen[BATCH];
      const int64_t count = share - first < BATCH ? share - first : BATCH;
      CHECK(ddp_model_zero_grad(model, NULL));
      for (int32_t i = 0; i < mine.count; ++i) {
        sampler.rank = mine.first + i;
        CHECK(ddp_sampler_fill(&sampler, epoch, first, count, chosen));
        sums[2 * i] = sums[2 * i] + work(net, model, chosen, count, i + 1 < mine.count ? DDP_PASS_PART : DDP_PASS_REDUCE);
        sums[2 * i + 1] = sums[2 * i + 1] + (double)count;
      }
      finish_step(model, sgd, ema);
    }
    CHECK(ddp_group_reduce_part_metrics(group, sums, 2, DDP_SUM));
  }
}

int main(void) {
  static network net;
  ddp_group *group = NULL;
  ddp_optimizer *sgd = NULL;
  ddp_ema *ema = NULL;
  ddp_group_options meeting;
  CHECK(ddp_group_options_init(&meeting, sizeof meeting));
  if (getenv("SAME_BITS_PARTS") != NULL) meeting.virtual_ranks = atoi(getenv("SAME_BITS_PARTS"));
  CHECK(ddp_group_create(NULL, &meeting, &group));
  start(&net, ddp_group_get_rank(group));
  ddp_model *model = lend_all(group, &net);
  ddp_sgd_options options;
  CHECK(ddp_sgd_options_init(&options, sizeof options));
  options.rate = 0.0625;
  options.momentum = 0.875;
  CHECK(ddp_optimizer_create_sgd(model, &options, NULL, &sgd));
  const double decay = 0.75;
  CHECK(ddp_ema_create(model, &decay, 1, &ema));

  union {
    double value;
    uint64_t bits;
  } loss;
  double sums[2 * MOST_PARTS] = {0};
  train(group, &net, model, sgd, ema, sums);
  loss.value = sums[0] / sums[1];
  int64_t parameters = 0, averages = 0;
  CHECK(ddp_model_get_hash(model, &parameters));
  CHECK(ddp_ema_swap(ema, 0, NULL));
  CHECK(ddp_model_get_hash(model, &averages));
  CHECK(ddp_ema_swap(ema, 0, NULL));
  printf("rank %d of %d: parameters %016llx averages %016llx loss %016llx\n", ddp_group_get_rank(group),
         ddp_group_get_size(group), (unsigned long long)parameters, (unsigned long long)averages,
         (unsigned long long)loss.bits);
  fflush(stdout);
  CHECK(ddp_group_barrier(group));
  ddp_ema_destroy(ema);
  ddp_optimizer_destroy(sgd);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return 0;
}
