/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

float model_random(uint64_t *state) {
  *state = *state * 6364136223846793005U + 1442695040888963407U;
  return (float)((double)(*state >> 40) / (double)(1 << 23) - 1);
}

parameter *model_add(model *model, const char *name, int64_t rows, int64_t columns, float scale, uint64_t *random) {
  parameter *added = &model->parameters[model->count++];
  snprintf(added->name, sizeof added->name, "%s", name);
  added->dims = columns > 0 ? 2 : 1;
  added->shape[0] = rows;
  added->shape[1] = columns > 0 ? columns : 1;
  added->count = added->shape[0] * added->shape[1];
  added->value = malloc((size_t)added->count * sizeof(float));
  added->grad = NULL;
  for (int64_t i = 0; i < added->count; ++i) added->value[i] = scale < 0 ? 1 : scale * model_random(random);
  return added;
}

model *model_by_name(const char *name, uint64_t seed) {
  static const int32_t sizes[] = {1024, 2048, 2048, 2048, 2048, 2048, 2048, 1000};
  if (strcmp(name, "mlp") == 0) return mlp_create(sizes, 7, 32, seed);
  if (strcmp(name, "gpt") == 0) return gpt_create((gpt_shape){8192, 384, 6, 6, 2, 64}, seed);
  return NULL;
}
