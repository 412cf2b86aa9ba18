/* SPDX-License-Identifier: Apache-2.0 */
/* Example 10: the same bits at any number of ranks.
 *
 *   for ranks in 1 2 3 5 8; do ddprun -n $ranks 10_same_bits; done
 *
 * Each run prints the same hash of the weights and the same loss, to the last digit: the batch has 8 parts, whatever the
 * number of ranks. Take virtual_ranks away (--parts 0), and both depend on the number of ranks.
 *
 * A linear classifier reads 8x8 pixels, of which some are dropped, and names the digit. Read train_step() first: it is what
 * a program of your own needs.
 */
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "data/digits.csv"
#endif

enum { PIXELS = 64, CLASSES = 10, BATCH = 64, MOST_SAMPLES = 1800, STEPS = 200, SEED = 5 };

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

typedef struct samples {
  int64_t count;
  float pixels[MOST_SAMPLES][PIXELS]; /* 0 to 1 */
  int label[MOST_SAMPLES];
} samples;

static int read_sample(FILE *file, float pixels[PIXELS], int *label) {
  int value = 0;
  for (int i = 0; i < PIXELS; ++i) {
    if (fscanf(file, "%d,", &value) != 1) return 0;
    pixels[i] = (float)value / 16.0F;
  }
  return fscanf(file, "%d", label) == 1 && *label >= 0 && *label < CLASSES;
}

static void load_digits(const char *path, samples *digits) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "The data file %s cannot be opened: give its place with --data.\n", path);
    exit(1);
  }
  while (digits->count < MOST_SAMPLES && read_sample(file, digits->pixels[digits->count], &digits->label[digits->count]))
    ++digits->count;
  fclose(file);
}

typedef struct training {
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *adam;
  ddp_virtual_ranks mine; /* the parts of the batch that this rank works on */
  float weight[CLASSES][PIXELS], bias[CLASSES], weight_grad[CLASSES][PIXELS], bias_grad[CLASSES];
} training;

/* A number from 0 to 1 that depends on the key alone (xorshift): not on earlier draws of this process. */
static double draw(uint64_t *key) {
  *key ^= *key << 13;
  *key ^= *key >> 7;
  *key ^= *key << 17;
  return (double)(*key >> 11) / 9007199254740992.0;
}

/* Adds to the gradients, which are the mean over `count` samples. Returns the mean of their losses. */
static double learn(training *t, const samples *digits, const int64_t *chosen, int64_t count, uint64_t key) {
  double loss = 0;
  for (int64_t b = 0; b < count; ++b) {
    float pixels[PIXELS];
    const int label = digits->label[chosen[b]];
    for (int i = 0; i < PIXELS; ++i) pixels[i] = draw(&key) < 0.2 ? 0 : digits->pixels[chosen[b]][i] / 0.8F;
    double value[CLASSES], sum = 0;
    for (int c = 0; c < CLASSES; ++c) {
      value[c] = t->bias[c];
      for (int i = 0; i < PIXELS; ++i) value[c] += t->weight[c][i] * pixels[i];
      sum += exp(value[c]);
    }
    loss += (log(sum) - value[label]) / (double)count;
    for (int c = 0; c < CLASSES; ++c) {
      const float delta = (float)((exp(value[c]) / sum - (c == label)) / (double)count);
      t->bias_grad[c] += delta;
      for (int i = 0; i < PIXELS; ++i) t->weight_grad[c][i] += delta * pixels[i];
    }
  }
  return loss;
}

/* One step: the parts of this rank one after the other. What differs from a program without parts: the sampler's rank and
 * size are those of a part, random numbers come from its key, and all passes but the last are DDP_PASS_PART. */
static double train_step(training *t, const samples *digits, int64_t step, double *losses) {
  const ddp_virtual_ranks *mine = &t->mine;
  ddp_sampler sampler;
  CHECK(ddp_sampler_init(&sampler, sizeof sampler));
  sampler.dataset_size = digits->count;
  sampler.seed = SEED;
  sampler.size = mine->total;
  const int64_t batch = BATCH / mine->total, in_epoch = digits->count / mine->total / batch;
  for (int32_t part = mine->first; part < mine->first + mine->count; ++part) {
    const int is_last = part + 1 == mine->first + mine->count;
    int64_t chosen[BATCH], key = 0;
    sampler.rank = part;
    CHECK(ddp_sampler_fill(&sampler, step / in_epoch, step % in_epoch * batch, batch, chosen));
    CHECK(ddp_virtual_rank_key(SEED, step, part, &key));
    memset(t->weight_grad, 0, sizeof t->weight_grad);
    memset(t->bias_grad, 0, sizeof t->bias_grad);
    CHECK(ddp_model_begin_backward(t->model, is_last ? DDP_PASS_REDUCE : DDP_PASS_PART));
    losses[part - mine->first] = learn(t, digits, chosen, batch, (uint64_t)key | 1);
    for (int32_t index = 1; index >= 0; --index) CHECK(ddp_model_mark_ready(t->model, index, NULL));
    CHECK(ddp_model_end_backward(t->model, NULL));
  }
  CHECK(ddp_optimizer_step(t->adam, NULL));
  CHECK(ddp_group_reduce_part_metrics(t->group, losses, 1, DDP_AVERAGE)); /* a loss for each part */
  return losses[0];
}

static void start(training *t, int32_t parts) {
  ddp_group_options options;
  CHECK(ddp_group_options_init(&options, sizeof options));
  options.virtual_ranks = parts; /* 0: as many as there are ranks */
  CHECK(ddp_group_create(NULL, &options, &t->group));
  t->mine.struct_size = sizeof t->mine;
  CHECK(ddp_group_get_virtual_ranks(t->group, &t->mine));
  if (t->mine.total > BATCH) {
    fprintf(stderr, "A batch of %d samples has no %d parts: take fewer.\n", BATCH, t->mine.total);
    exit(1);
  }
  CHECK(ddp_model_create(t->group, NULL, &t->model));
  CHECK(ddp_model_add_array(t->model, "weight", &t->weight[0][0], &t->weight_grad[0][0], CLASSES * PIXELS, NULL));
  CHECK(ddp_model_add_array(t->model, "bias", t->bias, t->bias_grad, CLASSES, NULL));
  CHECK(ddp_model_commit(t->model, NULL));
  ddp_adam_options rule;
  CHECK(ddp_adam_options_init(&rule, sizeof rule));
  rule.rate = 0.01;
  CHECK(ddp_optimizer_create_adam(t->model, &rule, NULL, &t->adam));
}

int main(int argc, char **argv) {
  static samples digits;
  static training t;
  static double losses[BATCH];
  const char *data = DIGITS_CSV;
  int32_t parts = 8;
  for (int i = 1; i < argc; i += 2) {
    const int has_value = i + 1 < argc;
    if (has_value && strcmp(argv[i], "--parts") == 0) {
      parts = (int32_t)atoi(argv[i + 1]);
    } else if (has_value && strcmp(argv[i], "--data") == 0) {
      data = argv[i + 1];
    } else {
      printf(
          "Usage: 10_same_bits [--parts N] [--data FILE]\n  --parts N    of the batch (default 8); 0: one for each rank\n");
      return strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }
  load_digits(data, &digits);
  start(&t, parts);
  double loss = 0;
  for (int64_t step = 0; step < STEPS; ++step) loss = train_step(&t, &digits, step, losses);
  int64_t hash = 0;
  CHECK(ddp_model_get_hash(t.model, &hash));
  printf("rank %d of %d, parts %d to %d of %d\n", ddp_group_get_rank(t.group), ddp_group_get_size(t.group), t.mine.first,
         t.mine.first + t.mine.count - 1, t.mine.total);
  if (ddp_group_get_rank(t.group) == 0) printf("weights %016llx, loss %.17g\n", (unsigned long long)hash, loss);
  ddp_optimizer_destroy(t.adam);
  ddp_model_destroy(t.model);
  ddp_group_destroy(t.group);
  return 0;
}
