/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"
#include "matrix.h"
#include "model.h"

/* Parameters, in the order of the forward: token table, positions, then for each block these, then the last norm. */
enum { TOKENS, POSITIONS, BLOCKS_BEGIN };
enum { NORM1, SHIFT1, QKV, QKV_BIAS, PROJECT, PROJECT_BIAS, NORM2, SHIFT2, UP, UP_BIAS, DOWN, DOWN_BIAS, PER_BLOCK };

typedef struct block {
  float *unit1, *inverse1, *normed1, *qkv, *weights, *mixed, *middle; /* middle: after attention */
  float *unit2, *inverse2, *normed2, *up, *active, *out;              /* out: the block's output */
} block;

typedef struct gpt {
  gpt_shape shape;
  int64_t rows; /* of all sequences */
  float *x;     /* after the embedding */
  block *blocks;
  float *unit, *inverse, *normed, *logits;
  float *dx, *dnormed, *dqkv, *dmixed, *dwide; /* gradients on the way back */
  int32_t *tokens, *wanted;
} gpt;

static parameter *of_block(model *model, int32_t l, int which) {
  return &model->parameters[BLOCKS_BEGIN + l * PER_BLOCK + which];
}

static void add_to(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

/* One head of one sequence: `q` begins a row of query, key, value of all heads. */
static matrix head_of(float *qkv, int64_t width, int64_t third) { return (matrix){qkv + third * width, 3 * width, 1}; }

static void softmax_rows(float *weights, int64_t length, float scale) {
  for (int64_t t = 0; t < length; ++t) {
    float *row = weights + t * length, largest = row[0], sum = 0;
    for (int64_t s = 0; s <= t; ++s) largest = fmaxf(largest, row[s]);
    for (int64_t s = 0; s <= t; ++s) sum += row[s] = expf((row[s] - largest) * scale);
    for (int64_t s = 0; s <= t; ++s) row[s] /= sum;
    for (int64_t s = t + 1; s < length; ++s) row[s] = 0;
  }
}

static void attention_forward(const gpt *g, block *b) {
  const int64_t width = g->shape.width, length = g->shape.length, size = width / g->shape.heads;
  for (int64_t s = 0; s < g->shape.sequences; ++s)
    for (int64_t h = 0; h < g->shape.heads; ++h) {
      float *qkv = b->qkv + s * length * 3 * width + h * size;
      float *weights = b->weights + (s * g->shape.heads + h) * length * length;
      multiply(head_of(qkv, width, 0), transposed(head_of(qkv, width, 1)), rows_of(weights, length), length, length, size,
               0);
      softmax_rows(weights, length, 1 / sqrtf((float)size));
      multiply(rows_of(weights, length), head_of(qkv, width, 2), rows_of(b->mixed + s * length * width + h * size, width),
               length, size, length, 0);
    }
}

static void attention_backward(const gpt *g, block *b, float *dweights) {
  const int64_t width = g->shape.width, length = g->shape.length, size = width / g->shape.heads;
  const float scale = 1 / sqrtf((float)size);
  for (int64_t s = 0; s < g->shape.sequences; ++s)
    for (int64_t h = 0; h < g->shape.heads; ++h) {
      float *qkv = b->qkv + s * length * 3 * width + h * size, *dqkv = g->dqkv + s * length * 3 * width + h * size;
      float *weights = b->weights + (s * g->shape.heads + h) * length * length;
      const matrix dmixed = rows_of(g->dmixed + s * length * width + h * size, width);
      multiply(transposed(rows_of(weights, length)), dmixed, head_of(dqkv, width, 2), length, size, length, 0);
      multiply(dmixed, transposed(head_of(qkv, width, 2)), rows_of(dweights, length), length, length, size, 0);
      for (int64_t t = 0; t < length; ++t) {
        float sum = 0, *row = dweights + t * length, *weight = weights + t * length;
        for (int64_t i = 0; i <= t; ++i) sum += row[i] * weight[i];
        for (int64_t i = 0; i < length; ++i) row[i] = i <= t ? weight[i] * (row[i] - sum) * scale : 0;
      }
      multiply(rows_of(dweights, length), head_of(qkv, width, 1), head_of(dqkv, width, 0), length, size, length, 0);
      multiply(transposed(rows_of(dweights, length)), head_of(qkv, width, 0), head_of(dqkv, width, 1), length, size, length,
               0);
    }
}

static void block_forward(model *model, int32_t l, const float *x) {
  gpt *g = model->self;
  block *b = &g->blocks[l];
  const int64_t width = g->shape.width, rows = g->rows;
  norm_forward(x, of_block(model, l, NORM1)->value, of_block(model, l, SHIFT1)->value, b->normed1, b->unit1, b->inverse1,
               rows, width);
  linear_forward(b->normed1, of_block(model, l, QKV)->value, of_block(model, l, QKV_BIAS)->value, b->qkv, rows, width,
                 3 * width);
  attention_forward(g, b);
  linear_forward(b->mixed, of_block(model, l, PROJECT)->value, of_block(model, l, PROJECT_BIAS)->value, b->middle, rows,
                 width, width);
  add_to(b->middle, x, rows * width);
  norm_forward(b->middle, of_block(model, l, NORM2)->value, of_block(model, l, SHIFT2)->value, b->normed2, b->unit2,
               b->inverse2, rows, width);
  linear_forward(b->normed2, of_block(model, l, UP)->value, of_block(model, l, UP_BIAS)->value, b->up, rows, width,
                 4 * width);
  gelu_forward(b->up, b->active, rows * 4 * width);
  linear_forward(b->active, of_block(model, l, DOWN)->value, of_block(model, l, DOWN_BIAS)->value, b->out, rows, 4 * width,
                 width);
  add_to(b->out, b->middle, rows * width);
}

typedef struct caller {
  ready_fn ready;
  void *context;
} caller;

static void done(model *model, int32_t l, int from, int to, caller then) {
  (void)model;
  for (int which = to; which >= from; --which) then.ready(then.context, BLOCKS_BEGIN + l * PER_BLOCK + which);
}

static void linear_of(model *model, int32_t l, int which, const float *x, const float *dy, float *dx, int64_t in,
                      int64_t out, caller then) {
  const parameter *w = of_block(model, l, which), *b = of_block(model, l, which + 1);
  linear_backward(x, w->value, dy, dx, w->grad, b->grad, ((gpt *)model->self)->rows, in, out);
  done(model, l, which, which + 1, then);
}

/* g->dx: the gradient of the block's output on entry, of its input on return. */
static void block_backward(model *model, int32_t l, caller then) {
  gpt *g = model->self;
  block *b = &g->blocks[l];
  const int64_t width = g->shape.width, rows = g->rows;
  linear_of(model, l, DOWN, b->active, g->dx, g->dwide, 4 * width, width, then);
  gelu_backward(b->up, g->dwide, g->dwide, rows * 4 * width);
  linear_of(model, l, UP, b->normed2, g->dwide, g->dnormed, width, 4 * width, then);
  norm_backward(g->dnormed, of_block(model, l, NORM2)->value, b->unit2, b->inverse2, g->dx, of_block(model, l, NORM2)->grad,
                of_block(model, l, SHIFT2)->grad, rows, width);
  done(model, l, NORM2, SHIFT2, then);
  linear_of(model, l, PROJECT, b->mixed, g->dx, g->dmixed, width, width, then);
  attention_backward(g, b, g->dwide);
  linear_of(model, l, QKV, b->normed1, g->dqkv, g->dnormed, width, 3 * width, then);
  norm_backward(g->dnormed, of_block(model, l, NORM1)->value, b->unit1, b->inverse1, g->dx, of_block(model, l, NORM1)->grad,
                of_block(model, l, SHIFT1)->grad, rows, width);
  done(model, l, NORM1, SHIFT1, then);
}

static void embedding_forward(model *model) {
  gpt *g = model->self;
  const int64_t width = g->shape.width;
  for (int64_t r = 0; r < g->rows; ++r) {
    const float *token = model->parameters[TOKENS].value + g->tokens[r] * width;
    const float *position = model->parameters[POSITIONS].value + r % g->shape.length * width;
    for (int64_t i = 0; i < width; ++i) g->x[r * width + i] = token[i] + position[i];
  }
}

/* The head has written the token table's gradient; the embedding adds to it. */
static void embedding_backward(model *model) {
  gpt *g = model->self;
  const int64_t width = g->shape.width;
  float *dtoken = model->parameters[TOKENS].grad, *dposition = model->parameters[POSITIONS].grad;
  memset(dposition, 0, (size_t)model->parameters[POSITIONS].count * sizeof *dposition);
  for (int64_t r = 0; r < g->rows; ++r) {
    add_to(dtoken + g->tokens[r] * width, g->dx + r * width, width);
    add_to(dposition + r % g->shape.length * width, g->dx + r * width, width);
  }
}

static double gpt_run(model *model, ready_fn ready, void *context) {
  gpt *g = model->self;
  const caller then = {ready, context};
  const int64_t width = g->shape.width, rows = g->rows, words = g->shape.vocabulary;
  const int32_t layers = g->shape.layers, last = BLOCKS_BEGIN + layers * PER_BLOCK;
  float *table = model->parameters[TOKENS].value;
  embedding_forward(model);
  for (int32_t l = 0; l < layers; ++l) block_forward(model, l, l == 0 ? g->x : g->blocks[l - 1].out);
  norm_forward(g->blocks[layers - 1].out, model->parameters[last].value, model->parameters[last + 1].value, g->normed,
               g->unit, g->inverse, rows, width);
  multiply(rows_of(g->normed, width), transposed(rows_of(table, width)), rows_of(g->logits, words), rows, words, width, 0);
  const double loss = cross_entropy(g->logits, g->wanted, rows, words);
  if (ready == NULL) return loss;
  multiply(rows_of(g->logits, words), rows_of(table, width), rows_of(g->dnormed, width), rows, width, words, 0);
  multiply(transposed(rows_of(g->logits, words)), rows_of(g->normed, width), rows_of(model->parameters[TOKENS].grad, width),
           words, width, rows, 0);
  memset(g->dx, 0, (size_t)(rows * width) * sizeof *g->dx);
  norm_backward(g->dnormed, model->parameters[last].value, g->unit, g->inverse, g->dx, model->parameters[last].grad,
                model->parameters[last + 1].grad, rows, width);
  ready(context, last + 1);
  ready(context, last);
  for (int32_t l = layers; l-- > 0;) block_backward(model, l, then);
  embedding_backward(model);
  ready(context, POSITIONS);
  ready(context, TOKENS);
  return loss;
}

static float *floats(int64_t count) { return calloc((size_t)count, sizeof(float)); }

static void allocate(gpt *g) {
  const int64_t n = g->rows * g->shape.width,
                weights = (int64_t)g->shape.sequences * g->shape.heads * g->shape.length * g->shape.length;
  g->x = floats(n);
  g->blocks = calloc((size_t)g->shape.layers, sizeof *g->blocks);
  for (int32_t l = 0; l < g->shape.layers; ++l)
    g->blocks[l] = (block){floats(n), floats(g->rows), floats(n), floats(3 * n), floats(weights), floats(n), floats(n),
                           floats(n), floats(g->rows), floats(n), floats(4 * n), floats(4 * n),   floats(n)};
  g->unit = floats(n);
  g->inverse = floats(g->rows);
  g->normed = floats(n);
  g->logits = floats(g->rows * g->shape.vocabulary);
  g->dx = floats(n);
  g->dnormed = floats(n);
  g->dqkv = floats(3 * n);
  g->dmixed = floats(n);
  g->dwide = floats(4 * n > weights ? 4 * n : weights);
  g->tokens = calloc((size_t)g->rows, sizeof(int32_t));
  g->wanted = calloc((size_t)g->rows, sizeof(int32_t));
}

static void add_block(model *made, int32_t l, int64_t width, uint64_t *random) {
  static const char *const names[PER_BLOCK] = {"norm1", "shift1", "qkv", "qkv_bias", "project", "project_bias",
                                               "norm2", "shift2", "up",  "up_bias",  "down",    "down_bias"};
  const int64_t rows[PER_BLOCK] = {width, width, 3 * width, 3 * width, width, width,
                                   width, width, 4 * width, 4 * width, width, width};
  const int64_t columns[PER_BLOCK] = {0, 0, width, 0, width, 0, 0, 0, width, 0, 4 * width, 0};
  for (int which = 0; which < PER_BLOCK; ++which) {
    char name[32];
    const int is_gain = which == NORM1 || which == NORM2;
    snprintf(name, sizeof name, "block%d.%s", l, names[which]);
    model_add(made, name, rows[which], columns[which],
              is_gain              ? -1
              : columns[which] > 0 ? 1 / sqrtf((float)columns[which])
                                   : 0.02F,
              random);
  }
}

model *gpt_create(gpt_shape shape, uint64_t seed) {
  model *made = calloc(1, sizeof *made);
  gpt *g = calloc(1, sizeof *g);
  uint64_t random = 1;
  g->shape = shape;
  g->rows = (int64_t)shape.sequences * shape.length;
  made->self = g;
  made->run = gpt_run;
  made->parameters = calloc((size_t)(BLOCKS_BEGIN + shape.layers * PER_BLOCK + 2), sizeof *made->parameters);
  model_add(made, "tokens", shape.vocabulary, shape.width, 0.05F, &random);
  model_add(made, "positions", shape.length, shape.width, 0.05F, &random);
  for (int32_t l = 0; l < shape.layers; ++l) add_block(made, l, shape.width, &random);
  model_add(made, "last_norm", shape.width, 0, -1, &random);
  model_add(made, "last_shift", shape.width, 0, 0.02F, &random);
  allocate(g);
  random = seed * 977 + 5;
  for (int64_t r = 0; r < g->rows; ++r) {
    g->tokens[r] = (int32_t)((model_random(&random) + 1) / 2 * (float)(shape.vocabulary - 1));
    g->wanted[r] = (int32_t)((model_random(&random) + 1) / 2 * (float)(shape.vocabulary - 1));
  }
  return made;
}

void gpt_set_batch(model *model, const int32_t *tokens, const int32_t *wanted) {
  gpt *g = model->self;
  memcpy(g->tokens, tokens, (size_t)g->rows * sizeof *tokens);
  memcpy(g->wanted, wanted, (size_t)g->rows * sizeof *wanted);
}
