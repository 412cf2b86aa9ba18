/* SPDX-License-Identifier: Apache-2.0 */
/* before.c on several processes: the network stays as it is, 12 lines are new or changed.
 *
 *   ddprun -n 4 after examples/data/digits.csv
 */
#include <ddp/ddp.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 64, HIDDEN = 48, CLASSES = 10, MOST = 2000, TRAINED = 1437, BATCH = 64, EPOCHS = 30, ARRAYS = 4 };

typedef struct array {
  const char *name;
  int64_t count;
  float *value, *grad;
} array;

static array net[ARRAYS] = {{"hidden.weight", HIDDEN *PIXELS, NULL, NULL},
                            {"hidden.bias", HIDDEN, NULL, NULL},
                            {"out.weight", CLASSES *HIDDEN, NULL, NULL},
                            {"out.bias", CLASSES, NULL, NULL}};
static float image[MOST][PIXELS];
static int label[MOST];
static uint32_t state = 1;
static ddp_group *job;
static ddp_model *model;
#define DO(call) ((call) == DDP_OK ? (void)0 : exit((fprintf(stderr, #call ": %s\n", ddp_last_error()), 1)))

static uint32_t next_number(uint32_t limit) {
  state = state * 1664525U + 1013904223U;
  return (state >> 8) % limit;
}

static int read_digits(const char *path) {
  FILE *const file = fopen(path, "r");
  int digits = 0, number = 0;
  if (file == NULL) exit(fprintf(stderr, "cannot read %s\n", path) < 0 ? 2 : 1);
  while (digits < MOST && fscanf(file, "%d,", &number) == 1) {
    image[digits][0] = (float)number / 16.0F;
    for (int i = 1; i <= PIXELS; ++i) {
      if (fscanf(file, "%d,", &number) != 1) exit(1);
      if (i < PIXELS) image[digits][i] = (float)number / 16.0F;
    }
    label[digits++] = number;
  }
  fclose(file);
  return digits;
}

static void make_network(void) {
  for (int a = 0; a < ARRAYS; ++a) {
    net[a].value = calloc((size_t)net[a].count, sizeof(float));
    net[a].grad = calloc((size_t)net[a].count, sizeof(float));
    if (net[a].value == NULL || net[a].grad == NULL) exit(1);
    for (int64_t i = 0; a % 2 == 0 && i < net[a].count; ++i)
      net[a].value[i] = ((float)next_number(2000) / 1000.0F - 1.0F) * 0.2F;
    DO(ddp_model_add_array(model, net[a].name, net[a].value, net[a].grad, net[a].count, NULL));
  }
}

/* The probability of each class. */
static void forward(const float *x, float *h, float *p) {
  float most = -1e30F, sum = 0;
  for (int i = 0; i < HIDDEN; ++i) {
    h[i] = net[1].value[i];
    for (int j = 0; j < PIXELS; ++j) h[i] += net[0].value[i * PIXELS + j] * x[j];
    if (h[i] < 0) h[i] = 0;
  }
  for (int c = 0; c < CLASSES; ++c) {
    p[c] = net[3].value[c];
    for (int i = 0; i < HIDDEN; ++i) p[c] += net[2].value[c * HIDDEN + i] * h[i];
    if (p[c] > most) most = p[c];
  }
  for (int c = 0; c < CLASSES; ++c) sum += p[c] = expf(p[c] - most);
  for (int c = 0; c < CLASSES; ++c) p[c] /= sum;
}

/* Adds one sample's gradients to those of the batch. */
static void learn(int sample, int weight) {
  const float scale = (float)weight / BATCH;
  float h[HIDDEN], p[CLASSES], back[HIDDEN] = {0};
  forward(image[sample], h, p);
  p[label[sample]] -= 1;
  for (int c = 0; c < CLASSES; ++c) {
    net[3].grad[c] += scale * p[c];
    for (int i = 0; i < HIDDEN; ++i) {
      net[2].grad[c * HIDDEN + i] += scale * p[c] * h[i];
      back[i] += p[c] * net[2].value[c * HIDDEN + i];
    }
  }
  for (int i = 0; i < HIDDEN; ++i) {
    if (h[i] <= 0) continue;
    net[1].grad[i] += scale * back[i];
    for (int j = 0; j < PIXELS; ++j) net[0].grad[i * PIXELS + j] += scale * back[i] * image[sample][j];
  }
}

static void test(int epoch, int digits) {
  int right = 0;
  double loss = 0;
  for (int s = TRAINED; s < digits; ++s) {
    float h[HIDDEN], p[CLASSES];
    int best = 0;
    forward(image[s], h, p);
    for (int c = 1; c < CLASSES; ++c) best = p[c] > p[best] ? c : best;
    right += best == label[s];
    loss -= log((double)p[label[s]]);
  }
  printf("epoch %2d  loss %.4f  right %.2f %%\n", epoch, loss / (digits - TRAINED), 100.0 * right / (digits - TRAINED));
}

int main(int argc, char **argv) {
  int order[TRAINED];
  const int digits = read_digits(argc > 1 ? argv[1] : "examples/data/digits.csv");
  DO(ddp_group_create(NULL, NULL, &job) || ddp_model_create(job, NULL, &model));
  make_network();
  DO(ddp_model_commit(model, NULL));
  for (int s = 0; s < TRAINED; ++s) order[s] = s;
  for (int epoch = 1; epoch <= EPOCHS; ++epoch) {
    for (int s = TRAINED - 1; s > 0; --s) {
      const int other = (int)next_number((uint32_t)s + 1), kept = order[s];
      order[s] = order[other];
      order[other] = kept;
    }
    for (int first = 0; first + BATCH <= TRAINED; first += BATCH) {
      DO(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
      for (int i = ddp_group_get_rank(job), n = ddp_group_get_size(job); i < BATCH; i += n) learn(order[first + i], n);
      for (int a = ARRAYS; a-- > 0;) DO(ddp_model_mark_ready(model, a, NULL));
      DO(ddp_model_end_backward(model, NULL));
      for (int a = 0; a < ARRAYS; ++a)
        for (int64_t i = 0; i < net[a].count; ++i) {
          net[a].value[i] -= 0.3F * net[a].grad[i];
          net[a].grad[i] = 0;
        }
    }
    if (epoch % 10 == 0 && ddp_group_get_rank(job) == 0) test(epoch, digits);
  }
  return 0;
}
