/* SPDX-License-Identifier: Apache-2.0 */
/* A committed model is reopened: what stays, what is refused, and what ranks see that do not do the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/ranks.h"

enum { N = 3 };

typedef struct fixture {
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *optimizer;
  float a[N], b[N], c[N], table[N], more[N];
} fixture;

static void open_model(fixture *f, ddp_group *group) {
  ddp_sgd_options rule;
  memset(f, 0, sizeof *f);
  f->group = group;
  check_ok(ddp_model_create(f->group, NULL, &f->model));
  check_ok(ddp_model_add_array(f->model, "a", f->a, NULL, N, NULL));
  check_ok(ddp_model_add_array(f->model, "b", f->b, NULL, N, NULL));
  const ddp_tensor table = vector_of(f->table, DDP_F32, N);
  check_ok(ddp_model_add_buffer(f->model, "table", &table, NULL));
  check_ok(ddp_sgd_options_init(&rule, sizeof rule));
  rule.rate = 1;
  check_ok(ddp_optimizer_create_sgd(f->model, &rule, NULL, &f->optimizer));
  check_ok(ddp_model_commit(f->model, NULL));
}

static void close_model(fixture *f) {
  ddp_optimizer_destroy(f->optimizer);
  ddp_model_destroy(f->model);
}

static void mark(fixture *f, int32_t index, float gradient) {
  ddp_tensor grad;
  check_ok(ddp_model_get_grad(f->model, index, &grad));
  for (int i = 0; i < N; i++) ((float *)grad.data)[i] = gradient;
  check_ok(ddp_model_mark_ready(f->model, index, NULL));
}

/* A step with the gradient `first` of parameter `index`, and `second` of 1. */
static void step(fixture *f, int32_t index, float first, float second) {
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  mark(f, index, first);
  mark(f, 1, second);
  check_ok(ddp_model_end_backward(f->model, NULL));
  check_ok(ddp_optimizer_step(f->optimizer, NULL));
}

/* "a" and the buffer are removed, and others are added under their names. */
static void replace_tensors(fixture *f) {
  int32_t index = -1;
  check_ok(ddp_model_remove_parameter(f->model, 0));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_remove_parameter(f->model, 0), "there is no parameter 0");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_remove_parameter(f->model, 2), "2 were added");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_remove_parameter(f->model, -1));
  check_ok(ddp_model_add_array(f->model, "a", f->a, NULL, N, &index)); /* its memory and its name are free */
  check_int(index, 2);
  check_ok(ddp_model_remove_buffer(f->model, 0));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_remove_buffer(f->model, 0), "there is no buffer 0");
  const ddp_tensor table = vector_of(f->more, DDP_F32, N);
  check_ok(ddp_model_add_buffer(f->model, "table", &table, &index));
  check_int(index, 1);
  check_int(ddp_model_get_parameter_count(f->model), 3);
}

check_case(a_model_grows_and_shrinks) {
  fixture f;
  int64_t steps = 0;
  ddp_model_stats stats = {.struct_size = sizeof stats};
  ddp_tensor tensor, before;
  open_model(&f, alone());
  step(&f, 0, 2, 1);
  check_ok(ddp_model_get_grad(f.model, 1, &before));

  check_ok(ddp_model_reopen(f.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_begin_backward(f.model, DDP_PASS_REDUCE), "not committed");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(f.optimizer, NULL), "not committed");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_reopen(f.model, NULL), "building already");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(f.model, "a", f.c, NULL, N, NULL), "registered already");
  replace_tensors(&f);
  check_ok(ddp_model_commit(f.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_remove_parameter(f.model, 1), "committed");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_remove_buffer(f.model, 1), "committed");

  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(f.optimizer, NULL), "used these gradients already");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_grad(f.model, 0, &tensor), "was removed");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_value(f.model, 0, &tensor), "was removed");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_parameter_options(f.optimizer, 0, 0, 1), "was removed");
  check_ok(ddp_model_get_grad(f.model, 1, &tensor));
  assert_ptr_equal(tensor.data, before.data);
  check_ok(ddp_model_get_stats(f.model, &stats));
  check_int(stats.parameters, 2);
  check_int(stats.elements, 2 * N);
  check_ok(ddp_model_begin_backward(f.model, DDP_PASS_REDUCE));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_mark_ready(f.model, 0, NULL), "was removed");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_reopen(f.model, NULL), "a backward pass is open");
  mark(&f, 2, 4);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(f.model, NULL), "did not mark \"b\"");
  ddp_error_details details = {.struct_size = sizeof details};
  assert_int_equal(ddp_get_error_details(&details), DDP_OK); /* check_ok would be the last failure */
  check_int(details.parameter_count, 1);
  check_ok(ddp_model_zero_grad(f.model, NULL));
  step(&f, 2, 4, 8);
  for (int i = 0; i < N; i++) {
    check_number(f.a[i], -2 - 4);
    check_number(f.b[i], -1 - 8);
  }
  check_ok(ddp_optimizer_get_step_count(f.optimizer, &steps));
  check_int(steps, 2);
  close_model(&f);
  ddp_group_destroy(f.group);
}

check_case(what_cannot_be_reopened_is_refused) {
  fixture f;
  ddp_ema *ema = NULL;
  ddp_outer *outer = NULL;
  const double decay = 0.5;
  open_model(&f, alone());
  ddp_model *fresh = new_model(f.group, NULL);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_reopen(fresh, NULL), "not committed");
  check_ok(ddp_model_add_array(fresh, "c", f.c, NULL, N, NULL));
  check_ok(ddp_model_remove_parameter(fresh, 0)); /* it is building */
  ddp_model_destroy(fresh);
  check_ok(ddp_ema_create(f.model, &decay, 1, &ema));
  check_ok(ddp_ema_update(ema, NULL));
  check_ok(ddp_ema_swap(ema, 0, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_reopen(f.model, NULL), "averages");
  check_ok(ddp_ema_swap(ema, 0, NULL));
  check_ok(ddp_outer_create(f.model, NULL, &outer));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_reopen(f.model, NULL), "ddp_outer_destroy");
  ddp_outer_destroy(outer);
  check_ok(ddp_model_reopen(f.model, NULL));
  const int32_t bucket[] = {1, 0}, wrong[] = {1};
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_buckets(f.model, wrong, 1), "no bucket has parameter");
  check_ok(ddp_model_set_buckets(f.model, bucket, 2));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_remove_parameter(f.model, 0), "ddp_model_set_buckets");
  check_ok(ddp_model_commit(f.model, NULL));
  check_ok(ddp_model_reopen(f.model, NULL));
  check_ok(ddp_model_remove_parameter(f.model, 0)); /* the plan has ended */
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_buckets(f.model, bucket, 2), "there is no parameter 0");
  const int32_t twice[] = {1, 1};
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_buckets(f.model, twice, 2), "named twice: 1");
  check_ok(ddp_model_set_buckets(f.model, wrong, 1));
  const int32_t removed[] = {0};
  ddp_optimizer *another = NULL;
  check_defaults(optimizer_options, options);
  options.parameters = removed;
  options.parameter_count = 1;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_sgd(f.model, NULL, &options, &another), "was removed");
  check_ok(ddp_model_commit(f.model, NULL));
  ddp_ema_destroy(ema);
  close_model(&f);
  ddp_group_destroy(f.group);
}

/* Rank 1 calls another function, or removes another parameter. */
check_ranks_case(ranks_that_differ_are_told, 2) {
  fixture f;
  open_model(&f, self->group);
  check_ok(ddp_model_reopen(f.model, NULL));
  check_ok(ddp_model_remove_parameter(f.model, self->index));
  check_error_text(DDP_ERROR_MISMATCH, ddp_model_commit(f.model, NULL), "the ranks registered different models");
  check_text(ddp_last_error(), "parameter 0 is \"b\" F32 [3] on rank 0, but \"a\" F32 [3] on rank 1");
  check_ok(ddp_model_remove_parameter(f.model, 1 - self->index));
  check_ok(ddp_model_add_array(f.model, "c", f.c, NULL, N, NULL));
  check_ok(ddp_model_commit(f.model, NULL));
  check_ok(ddp_model_begin_backward(f.model, DDP_PASS_REDUCE));
  if (self->index == 0) mark(&f, 2, 1);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(f.model, NULL), "rank 1 did not mark \"c\"");
  int32_t named = -1, count = 0;
  check_int(ddp_get_error_parameters(&named, 1, &count), DDP_OK); /* check_ok would be the last failure */
  check_int(count, 1);
  check_int(named, 2);
  close_model(&f);
}
