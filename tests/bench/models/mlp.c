/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"
#include "model.h"

enum { MOST_LAYERS = 16 };
typedef struct mlp {
  int32_t layers, batch, sizes[MOST_LAYERS + 1];
  float *x[MOST_LAYERS + 1]; /* the input of each layer; the last: logits, then their gradient */
  float *dx[2];              /* gradients of two neighbouring inputs */
  int32_t *wanted;
} mlp;

static double mlp_run(model *model, ready_fn ready, void *context) {
  mlp *self = model->self;
  const int32_t layers = self->layers, batch = self->batch;
  for (int32_t l = 0; l < layers; ++l) {
    const parameter *w = &model->parameters[2 * l], *b = w + 1;
    linear_forward(self->x[l], w->value, b->value, self->x[l + 1], batch, self->sizes[l], self->sizes[l + 1]);
    if (l + 1 == layers) break;
    for (int64_t i = 0; i < (int64_t)batch * self->sizes[l + 1]; ++i) self->x[l + 1][i] = fmaxf(self->x[l + 1][i], 0);
  }
  const double loss = cross_entropy(self->x[layers], self->wanted, batch, self->sizes[layers]);
  if (ready == NULL) return loss;
  const float *dy = self->x[layers];
  for (int32_t l = layers; l-- > 0;) {
    const parameter *w = &model->parameters[2 * l], *b = w + 1;
    float *dx = l > 0 ? self->dx[l % 2] : NULL;
    linear_backward(self->x[l], w->value, dy, dx, w->grad, b->grad, batch, self->sizes[l], self->sizes[l + 1]);
    ready(context, 2 * l + 1);
    ready(context, 2 * l);
    if (l == 0) break;
    for (int64_t i = 0; i < (int64_t)batch * self->sizes[l]; ++i) dx[i] = self->x[l][i] > 0 ? dx[i] : 0;
    dy = dx;
  }
  return loss;
}

model *mlp_create(const int32_t *sizes, int32_t layers, int32_t batch, uint64_t seed) {
  model *made = calloc(1, sizeof *made);
  mlp *self = calloc(1, sizeof *self);
  uint64_t random = 1;
  int32_t widest = 0;
  made->self = self;
  made->run = mlp_run;
  made->parameters = calloc((size_t)(2 * layers), sizeof *made->parameters);
  self->layers = layers;
  self->batch = batch;
  for (int32_t l = 0; l <= layers; ++l) {
    self->sizes[l] = sizes[l];
    widest = sizes[l] > widest ? sizes[l] : widest;
    self->x[l] = malloc((size_t)batch * (size_t)sizes[l] * sizeof(float));
    memset(self->x[l], 0, (size_t)batch * (size_t)sizes[l] * sizeof(float));
    if (l == layers) break;
    char name[32];
    snprintf(name, sizeof name, "layer%d.weight", l);
    model_add(made, name, sizes[l + 1], sizes[l], sqrtf(3.0F / (float)sizes[l]), &random);
    snprintf(name, sizeof name, "layer%d.bias", l);
    model_add(made, name, sizes[l + 1], 0, 0.1F, &random);
  }
  for (int i = 0; i < 2; ++i) self->dx[i] = calloc((size_t)batch * (size_t)widest, sizeof(float));
  self->wanted = malloc((size_t)batch * sizeof(int32_t));
  random = seed * 977 + 5;
  for (int64_t i = 0; i < (int64_t)batch * sizes[0]; ++i) self->x[0][i] = model_random(&random);
  for (int32_t r = 0; r < batch; ++r)
    self->wanted[r] = (int32_t)((model_random(&random) + 1) / 2 * (float)(sizes[layers] - 1));
  return made;
}
