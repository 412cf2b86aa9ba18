/* SPDX-License-Identifier: Apache-2.0 */
/* Example 4: ranks with unequal data. No rank pads or drops samples, and the result is that of one process with all of them.
 *
 *   ddprun -n 3 04_uneven
 *
 * Rank r has r + 1 shares of the samples, so ranks run out after different numbers of batches, each with a last batch that
 * is not full. Two calls correct for that: ddp_model_set_weight sets the number of samples of a gradient, and ddp_model_join
 * answers the other ranks when there is no batch left. The same training is then done alone, in double precision, and
 * compared.
 */
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PARAMETERS = 3, SAMPLES = 600, BATCH = 16, EPOCHS = 10 };
static const double rate = 0.2;

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* Sample `index`, the same on every rank: two features and a constant, and an answer with some noise. */
static double make_sample(int64_t index, double features[PARAMETERS]) {
  features[0] = (double)(index * 7 % 11 - 5) / 5;
  features[1] = (double)(index * 3 % 13 - 6) / 6;
  features[2] = 1;
  return 2 * features[0] - 3 * features[1] + 1 + (double)(index * 29 % 17 - 8) / 100;
}

/* The first sample of a rank; the one after its last is the next rank's first. */
static int64_t first_sample(int rank, int size) { return (int64_t)SAMPLES * rank * (rank + 1) / (size * (size + 1)); }

/* How many samples a rank has in its batch number `batch`; 0: it has run out. */
static int64_t batch_size(int rank, int size, int64_t batch) {
  const int64_t left = first_sample(rank + 1, size) - first_sample(rank, size) - batch * BATCH;
  return left < 0 ? 0 : left < BATCH ? left : BATCH;
}

/* Add the gradients of one rank's batch to `sum`. */
static void add_batch(int rank, int size, int64_t batch, const double *weight, double *sum) {
  const int64_t first = first_sample(rank, size) + batch * BATCH;
  for (int64_t i = first; i < first + batch_size(rank, size, batch); ++i) {
    double features[PARAMETERS];
    double error = -make_sample(i, features);
    for (int p = 0; p < PARAMETERS; ++p) error += weight[p] * features[p];
    for (int p = 0; p < PARAMETERS; ++p) sum[p] += error * features[p];
  }
}

/* The mean gradient of this rank's batch, as a framework computes it. */
static void backward(int rank, int size, int64_t batch, const float *weight, float *gradient) {
  double wide[PARAMETERS], sum[PARAMETERS] = {0};
  for (int p = 0; p < PARAMETERS; ++p) wide[p] = (double)weight[p];
  add_batch(rank, size, batch, wide, sum);
  for (int p = 0; p < PARAMETERS; ++p) gradient[p] = (float)(sum[p] / (double)batch_size(rank, size, batch));
}

/* One process that has every rank's samples, batch by batch. */
static void train_alone(int size, double weight[PARAMETERS]) {
  for (int epoch = 0; epoch < EPOCHS; ++epoch) {
    for (int64_t batch = 0;; ++batch) {
      double sum[PARAMETERS] = {0};
      int64_t samples = 0;
      for (int rank = 0; rank < size; ++rank) {
        add_batch(rank, size, batch, weight, sum);
        samples += batch_size(rank, size, batch);
      }
      if (samples == 0) break;
      for (int p = 0; p < PARAMETERS; ++p) weight[p] -= rate * sum[p] / (double)samples;
    }
  }
}

static ddp_model *make_model(ddp_group *group, float *weight, float *gradient) {
  ddp_model_options options;
  ddp_model *model = NULL;
  CHECK(ddp_model_options_init(&options, sizeof options));
  options.divisor = DDP_DIVISOR_WEIGHTS; /* the mean over samples, not over ranks */
  options.uneven_inputs = 1;             /* ranks may run out */
  CHECK(ddp_model_create(group, &options, &model));
  CHECK(ddp_model_add_array(model, "weight", weight, gradient, PARAMETERS, NULL));
  CHECK(ddp_model_commit(model, NULL));
  return model;
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int rank = ddp_group_get_rank(group), size = ddp_group_get_size(group);
  float weight[PARAMETERS] = {0}, gradient[PARAMETERS] = {0};
  ddp_model *model = make_model(group, weight, gradient);
  ddp_sgd_options options;
  ddp_optimizer *optimizer = NULL;
  CHECK(ddp_sgd_options_init(&options, sizeof options));
  options.rate = rate;
  CHECK(ddp_optimizer_create_sgd(model, &options, NULL, &optimizer));

  int64_t batches = 0;
  for (int epoch = 0; epoch < EPOCHS; ++epoch) {
    for (int64_t batch = 0; batch_size(rank, size, batch) > 0; ++batch, ++batches) {
      CHECK(ddp_model_set_weight(model, (double)batch_size(rank, size, batch)));
      CHECK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
      backward(rank, size, batch, weight, gradient);
      CHECK(ddp_model_mark_ready(model, 0, NULL));
      CHECK(ddp_model_end_backward(model, NULL));
      CHECK(ddp_optimizer_step(optimizer, NULL));
    }
    CHECK(ddp_model_join(model, NULL)); /* until every rank is here; then all hold the newest weights */
  }
  CHECK(ddp_model_check_replicas(model, NULL));

  double alone[PARAMETERS] = {0}, difference = 0;
  train_alone(size, alone);
  for (int p = 0; p < PARAMETERS; ++p) difference = fmax(difference, fabs(alone[p] - (double)weight[p]));
  printf("rank %d: %lld samples, %lld batches of its own\n", rank,
         (long long)(first_sample(rank + 1, size) - first_sample(rank, size)), (long long)batches);
  if (rank == 0) {
    printf("weights: %.3f %.3f %.3f\n", (double)weight[0], (double)weight[1], (double)weight[2]);
    printf("%s one process with all samples\n", difference < 1e-5 ? "equal to" : "DIFFERENT from");
  }
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return difference < 1e-5 ? 0 : 1;
}
