/* SPDX-License-Identifier: Apache-2.0 */
/* Two small models with a real forward and backward, one thread, for measuring training steps. Values and gradients belong
 * to the caller's choice: a gradient is written (not added to) where `grad` points when the backward reaches it, and then
 * `ready` is called.
 * Tested by bench/models/backward_test.c against finite differences. */
#ifndef DDP_TESTS_BENCH_MODEL_H
#define DDP_TESTS_BENCH_MODEL_H

#include <stdint.h>

typedef struct parameter {
  char name[32];
  int32_t dims;
  int64_t shape[2];
  int64_t count;
  float *value; /* the model's */
  float *grad;  /* the caller's; set before a backward */
} parameter;

typedef void (*ready_fn)(void *context, int32_t index);

typedef struct model {
  int32_t count;
  parameter *parameters;
  void *self;
  /* The mean loss of the batch, and all gradients; `ready` may be NULL, and then no backward is done. */
  double (*run)(struct model *model, ready_fn ready, void *context);
} model;

/* A chain of linear layers with ReLU between them: sizes[0] inputs, ..., sizes[layers] classes, cross entropy. */
model *mlp_create(const int32_t *sizes, int32_t layers, int32_t batch, uint64_t seed);

typedef struct gpt_shape {
  int32_t vocabulary, width, layers, heads, sequences, length;
} gpt_shape;
/* A decoder as GPT-2's: learned positions, pre-norm blocks, GELU (tanh form), the head shares the token table. */
model *gpt_create(gpt_shape shape, uint64_t seed);
/* The next runs are of these words: sequences x length each, and the words that should follow. */
void gpt_set_batch(model *model, const int32_t *tokens, const int32_t *wanted);

/* The shapes that the benchmark trains, by name ("mlp", "gpt"); NULL for another name. `seed` makes the batch; values are
 * the same for all. */
model *model_by_name(const char *name, uint64_t seed);

parameter *model_add(model *model, const char *name, int64_t rows, int64_t columns, float scale, uint64_t *random);

float model_random(uint64_t *state); /* uniform in (-1, 1) */

#endif
