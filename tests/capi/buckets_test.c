/* SPDX-License-Identifier: Apache-2.0 */
/* ddp_model_set_buckets: the program's plan replaces the library's; wrong plans are refused. */
#include <string.h>

#include "support/ranks.h"

#define COUNT 4
static const int64_t kSizes[COUNT] = {3, 5, 7, 2};

typedef struct world {
  float values[COUNT][8];
  double last[8]; /* parameter 3 is F64 */
  ddp_model *model;
} world;

static void make(ddp_group *group, world *w) {
  char name[] = "p0";
  memset(w, 0, sizeof *w);
  check_ok(ddp_model_create(group, NULL, &w->model));
  for (int i = 0; i < COUNT; i++) {
    const ddp_tensor value = i == 3 ? vector_of(w->last, DDP_F64, kSizes[i]) : vector_of(w->values[i], DDP_F32, kSizes[i]);
    name[1] = (char)('0' + i);
    check_ok(ddp_model_add_parameter(w->model, name, &value, NULL, NULL));
  }
}

static void *grad_of(const world *w, int32_t index) {
  ddp_tensor grad;
  check_ok(ddp_model_get_grad(w->model, index, &grad));
  return grad.data;
}

/* Bucket 0: the parameters 2 and 0; then 3; then 1. */
static void train(rank *self) {
  const int32_t numbers[] = {2, 0, -1, 3, -1, 1};
  char plan[1024];
  world w;
  make(self->group, &w);
  check_ok(ddp_model_set_buckets(w.model, numbers, 6));
  check_ok(ddp_model_commit(w.model, NULL));
  check_ok(ddp_model_describe_plan(w.model, plan, sizeof plan, NULL));
  const char *first = strstr(plan, ": p2 p0\n"), *second = strstr(plan, ": p3\n"), *third = strstr(plan, ": p1\n");
  check_true(first != NULL && second > first && third > second);
  float *p2 = grad_of(&w, 2), *p0 = grad_of(&w, 0), *p1 = grad_of(&w, 1);
  double *p3 = grad_of(&w, 3);
  check_true(p0 == p2 + 7);
  check_true((uintptr_t)p2 % 4096 == 0 && (uintptr_t)p3 % 4096 == 0 && (uintptr_t)p1 % 4096 == 0);
  for (int step = 0; step < 2; step++) {
    for (int i = 0; i < 10; i++) p2[i] = (float)(i + self->index + step);
    p1[4] = (float)(4 * self->index);
    p3[1] = 4.0 * self->index;
    check_ok(ddp_model_begin_backward(w.model, DDP_PASS_REDUCE));
    for (int32_t i = 0; i < COUNT; i++) check_ok(ddp_model_mark_ready(w.model, i, NULL));
    check_ok(ddp_model_end_backward(w.model, NULL));
    for (int i = 0; i < 10; i++) check_number(p2[i], (double)i + (self->size - 1) / 2.0 + step);
    check_number(p3[1], 2.0 * (self->size - 1));
    check_number(p1[4], 2.0 * (self->size - 1));
  }
  ddp_model_destroy(w.model);
}

check_case(the_programs_plan_is_used) {
  run_ranks(1, "local://buckets1", train, NULL);
  run_ranks(3, "local://buckets3", train, NULL);
}

check_ranks_case(other_buckets_on_another_rank_are_a_mismatch, 2) {
  const int32_t numbers[] = {2, 0, 1, -1, 3}, others[] = {0, 2, 1, -1, 3};
  world w;
  make(self->group, &w);
  check_ok(ddp_model_set_buckets(w.model, self->index == 1 ? others : numbers, 5));
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_commit(w.model, NULL),
                   "bucket 0 of ddp_model_set_buckets is 2 0 1 on rank 0");
  check_ok(ddp_model_set_buckets(w.model, numbers, 5)); /* the model is still being built */
  check_ok(ddp_model_commit(w.model, NULL));
  ddp_model_destroy(w.model);
}

check_alone_case(wrong_plans_are_refused) {
  const ddp_status bad = DDP_ERROR_INVALID_ARGUMENT;
  const int32_t good[] = {2, 0, 1, -1, 3};
  const struct {
    int32_t numbers[7], count;
    const char *text;
  } wrong[] = {
      {{2, 0, 1, -1, 4}, 5, "there is no parameter 4"},
      {{2, 0, 1, -1, -2}, 5, "there is no parameter -2"},
      {{2, 0, 1, 2, -1, 3}, 6, "named twice: 2"},
      {{2, 0, -1, 3}, 4, "no bucket has parameter 1"},
      {{2, 0, 1, -1, -1, 3}, 6, "no parameter in bucket 1"},
      {{-1, 2, 0, 1, -1, 3}, 6, "no parameter in bucket 0"},
      {{2, 0, 1, -1, 3, -1}, 6, "no parameter in bucket 2"},
      {{2, 0, 1, 3}, 4, "the parameters 2 and 3 are in one bucket"},
      {{2, 0, 1, -1, 3}, 0, "count is 0"},
      {{2, 0, 1, -1, 3}, -1, "count is -1"},
  };
  float more[2] = {0};
  const ddp_tensor late = vector_of(more, DDP_F32, 2);
  world w;
  make(group, &w);
  check_error_text(bad, ddp_model_set_buckets(w.model, NULL, 5), "numbers is NULL");
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    check_error_text(bad, ddp_model_set_buckets(w.model, wrong[i].numbers, wrong[i].count), wrong[i].text);
  check_ok(ddp_model_set_buckets(w.model, good, 5));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_add_parameter(w.model, "late", &late, NULL, NULL),
                   "names all parameters");
  check_ok(ddp_model_commit(w.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_set_buckets(w.model, good, 5), "committed");
  ddp_model_destroy(w.model);
}
