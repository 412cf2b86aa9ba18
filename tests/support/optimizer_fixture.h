/* SPDX-License-Identifier: Apache-2.0 */
/* A group of one rank with a model of two parameters, whose values are 1, 2, 3 and whose gradients are 2. */
#ifndef DDP_TESTS_OPTIMIZER_FIXTURE_H
#define DDP_TESTS_OPTIMIZER_FIXTURE_H

#include "support/ranks.h"

typedef struct fixture {
  ddp_group *group;
  ddp_model *model;
  float value[2][3], grad[2][3];
} fixture;

static inline void open_fixture(fixture *f) {
  memset(f, 0, sizeof *f);
  f->group = alone();
  check_ok(ddp_model_create(f->group, NULL, &f->model));
  for (int p = 0; p < 2; p++) {
    const ddp_tensor value = vector_of(f->value[p], DDP_F32, 3);
    const ddp_tensor grad = vector_of(f->grad[p], DDP_F32, 3);
    check_ok(ddp_model_add_parameter(f->model, p == 0 ? "weight" : "bias", &value, &grad, NULL));
    for (int i = 0; i < 3; i++) {
      f->value[p][i] = (float)(i + 1);
      f->grad[p][i] = 2;
    }
  }
  check_ok(ddp_model_commit(f->model, NULL));
}

static inline void close_fixture(fixture *f) {
  ddp_model_destroy(f->model);
  ddp_group_destroy(f->group);
}

#endif
