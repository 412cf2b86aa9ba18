/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/hook.h: hooks of the program's own as callbacks and pulled, the built-in ones, and the calls that are refused. Ranks
 * are threads. */
#include <math.h>

#include "support/ranks.h"

#define COUNT 600

typedef struct hooked {
  rank *self;
  ddp_model *model;
  float value[2][COUNT], grad[2][COUNT];
  int calls, released, fails;
  ddp_bucket *kept;
  ddp_group *kept_group;
} hooked;

static void count_release(void *user_data) { ((hooked *)user_data)->released++; }

static void build_with(hooked *h, rank *self, ddp_dtype wire) {
  memset(h, 0, sizeof *h);
  h->self = self;
  check_defaults(model_options, options);
  options.first_bucket_bytes = COUNT * 4;
  options.bucket_bytes = COUNT * 4;
  options.wire = wire;
  check_ok(ddp_model_create(self->group, &options, &h->model));
  for (int p = 0; p < 2; p++) {
    const ddp_tensor value = vector_of(h->value[p], DDP_F32, COUNT), grad = vector_of(h->grad[p], DDP_F32, COUNT);
    check_ok(ddp_model_add_parameter(h->model, p == 0 ? "weight" : "bias", &value, &grad, NULL));
  }
}

static void build(hooked *h, rank *self) { build_with(h, self, (ddp_dtype)0); }

static void fill(hooked *h) {
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < COUNT; i++) h->grad[p][i] = (float)(i * (h->self->index + 1) + p);
}

static void mark_filled(hooked *h) {
  check_ok(ddp_model_begin_backward(h->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(h->model, 1, NULL));
  check_ok(ddp_model_mark_ready(h->model, 0, NULL));
}

static void mark(hooked *h) {
  fill(h);
  mark_filled(h);
}

static void check_means(hooked *h) {
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < COUNT; i++) check_number(h->grad[p][i], 1.5 * i + p);
}

static int32_t average(void *user_data, ddp_bucket *bucket) {
  hooked *h = user_data;
  ddp_tensor whole, part;
  ddp_group *group = NULL;
  int32_t index = -1;
  h->calls++;
  h->kept = bucket;
  check_int(ddp_bucket_get_index(bucket), 1 - ddp_bucket_is_last(bucket) == 1 ? 0 : 1);
  check_int(ddp_bucket_get_parameter_count(bucket), 1);
  check_ok(ddp_bucket_get_contents(bucket, &whole));
  check_ok(ddp_bucket_get_parameter(bucket, 0, &index, &part));
  check_int(index, 1 - ddp_bucket_get_index(bucket));
  check_int(ddp_bucket_is_used(bucket, 0), 1);
  check_int(ddp_bucket_is_used(bucket, 1), -1);
  check_int(part.shape[0], COUNT);
  check_int(part.data == whole.data, 1);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_bucket_get_contents(bucket, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_bucket_get_parameter(bucket, 1, &index, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_bucket_get_group(bucket, NULL));
  check_ok(ddp_bucket_get_group(bucket, &group));
  h->kept_group = group;
  check_int(ddp_group_get_rank(group), ddp_group_get_rank(h->self->group));
  check_int(ddp_group_get_size(group), ddp_group_get_size(h->self->group));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, NULL, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, &whole, (ddp_reduce)9, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &part, &whole, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &part, &whole, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_broadcast(group, &whole, 2, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_barrier(group), "inside a hook");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_abort(group, "a test"), "inside a hook");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_bucket_set_error(bucket, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_group_barrier(h->self->group));
  if (h->fails) {
    check_ok(ddp_bucket_set_error(bucket, "my table is empty"));
    return 42;
  }
  return ddp_group_all_reduce(group, &whole, DDP_AVERAGE, NULL);
}

check_ranks_case(a_callback_reduces_and_its_failure_is_everybodys, 2) {
  hooked h;
  ddp_group *group = NULL;
  build(&h, self);
  check_ok(ddp_model_set_hook(h.model, average, &h, count_release));
  check_ok(ddp_model_set_hook(h.model, average, &h, count_release)); /* in place of the first */
  check_int(h.released, 1);
  check_ok(ddp_model_commit(h.model, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_set_hook(h.model, average, &h, count_release));
  check_int(h.released, 2);
  mark(&h);
  check_ok(ddp_model_end_backward(h.model, NULL));
  check_means(&h);
  check_int(h.calls, 2);
  check_error(DDP_ERROR_INVALID_STATE, ddp_bucket_get_group(h.kept, &group)); /* not in a hook */
  check_error(DDP_ERROR_INVALID_STATE, ddp_group_all_reduce(h.kept_group, NULL, DDP_SUM, NULL));
  check_int(ddp_group_get_rank(h.kept_group), -1);
  check_int(ddp_bucket_get_index(h.kept), -1);
  h.fails = self->index == 1;
  mark(&h);
  check_error_text(DDP_ERROR_CALLBACK, ddp_model_end_backward(h.model, NULL), "my table is empty");
  check_text(ddp_last_error(), "rank 1");
  h.fails = 0;
  mark(&h);
  check_ok(ddp_model_end_backward(h.model, NULL));
  check_means(&h);
  ddp_model_destroy(h.model);
  check_int(h.released, 3);
  check_int(ddp_bucket_is_last(h.kept), -1);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_bucket_set_error(h.kept, "too late"));
}

check_ranks_case(buckets_can_be_pulled, 2) {
  hooked h;
  ddp_bucket *bucket = NULL;
  ddp_tensor whole;
  ddp_group *group = NULL;
  int pulled = 0;
  build(&h, self);
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_next_bucket(h.model, 0, &bucket));
  check_ok(ddp_model_set_pulled_hook(h.model));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_next_bucket(h.model, 0, &bucket));
  check_ok(ddp_model_commit(h.model, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_set_pulled_hook(h.model));
  mark(&h);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_next_bucket(h.model, 0, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_next_bucket(h.model, 2, &bucket));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_finish_bucket(h.model, 0, NULL));
  for (;;) {
    check_ok(ddp_model_next_bucket(h.model, 1, &bucket));
    if (bucket == NULL) break;
    check_ok(ddp_bucket_get_contents(bucket, &whole));
    check_ok(ddp_bucket_get_group(bucket, &group));
    check_ok(ddp_group_all_reduce(group, &whole, DDP_AVERAGE, NULL));
    check_ok(ddp_model_finish_bucket(h.model, 0, NULL));
    check_int(ddp_bucket_get_parameter_count(bucket), -1);
    pulled++;
  }
  check_int(pulled, 2);
  check_ok(ddp_model_end_backward(h.model, NULL));
  check_means(&h);
  mark(&h);
  check_ok(ddp_model_next_bucket(h.model, 0, &bucket));
  check_error_text(DDP_ERROR_CALLBACK, ddp_model_finish_bucket(h.model, self->index, "no more of this"), "no more of this");
  check_error_text(DDP_ERROR_CALLBACK, ddp_model_end_backward(h.model, NULL), "no more of this");
  mark(&h);
  check_ok(ddp_model_next_bucket(h.model, 0, &bucket));
  if (self->index == 0) check_ok(ddp_bucket_set_error(bucket, "said before"));
  check_error_text(DDP_ERROR_CALLBACK, ddp_model_finish_bucket(h.model, self->index == 0 ? 5 : 0, NULL), "said before");
  check_error_text(DDP_ERROR_CALLBACK, ddp_model_end_backward(h.model, NULL), "said before");
  check_ok(ddp_group_barrier(self->group));
  ddp_model_destroy(h.model);
}

static void train_with(rank *self, ddp_dtype wire) {
  hooked h;
  build_with(&h, self, wire);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_set_hook(h.model, ddp_hook_powersgd, NULL, NULL), "the option wire");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_set_pulled_hook(h.model), "the option wire");
  check_ok(ddp_model_commit(h.model, NULL));
  fill(&h);
  h.grad[0][1] = 1.0f + 1.0f / 1024; /* not in BF16 */
  h.grad[0][2] = 1e6f;               /* not in F16 */
  mark_filled(&h);
  check_ok(ddp_model_end_backward(h.model, NULL));
  check_number(h.grad[0][1], wire == DDP_F16 ? 1.0 + 1.0 / 1024 : 1.0);
  check_number(h.grad[0][2], wire == DDP_F16 ? (double)INFINITY : 999424.0);
  check_number(h.grad[1][100], 151);
  ddp_model_destroy(h.model);
}

check_ranks_case(gradients_travel_with_16_bits_if_the_model_says_so, 2) {
  ddp_model *model = NULL;
  train_with(self, DDP_F16);
  train_with(self, DDP_BF16);
  check_defaults(model_options, options);
  check_int((int)options.wire, 0);
  options.wire = DDP_F64;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(self->group, &options, &model), "wire is 2");
}

static int32_t by_powersgd(void *user_data, ddp_bucket *bucket) { return ddp_hook_powersgd(user_data, bucket); }

check_ranks_case(powersgd_is_exact_for_a_matrix_of_its_rank, 2) {
  for (int called = 0; called < 2; called++) {
    float value[20 * 30] = {0}, grad[20 * 30];
    const int64_t shape[2] = {20, 30};
    ddp_tensor values, grads;
    check_ok(ddp_tensor_init(&values, value, DDP_F32, 2, shape));
    check_ok(ddp_tensor_init(&grads, grad, DDP_F32, 2, shape));
    check_defaults(powersgd_options, options);
    check_int(options.start_pass, 1000);
    check_int(options.rank + options.warm_start + options.error_feedback, 3);
    check_number(options.min_compression_rate, 2);
    ddp_model *model = new_model(self->group, NULL);
    check_ok(ddp_model_add_parameter(model, "w", &values, &grads, NULL));
    options.rank = 0;
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_hook(model, ddp_hook_powersgd, &options, NULL));
    options.rank = 1, options.min_compression_rate = 0.5;
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_hook(model, ddp_hook_powersgd, &options, NULL));
    options.min_compression_rate = 2, options.warm_start = 2;
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_hook(model, ddp_hook_powersgd, &options, NULL));
    options.warm_start = 1, options.start_pass = -1;
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_hook(model, ddp_hook_powersgd, &options, NULL));
    options.start_pass = 0;
    check_ok(ddp_model_set_hook(model, called ? by_powersgd : ddp_hook_powersgd, &options, NULL));
    check_ok(ddp_model_commit(model, NULL));
    for (int pass = 0; pass < 3; pass++) {
      for (int i = 0; i < 20 * 30; i++) grad[i] = (float)((i / 30 - 7) * (i % 30 + 1) * (self->index + 1));
      check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
      check_ok(ddp_model_mark_ready(model, 0, NULL));
      check_ok(ddp_model_end_backward(model, NULL));
      for (int i = 0; i < 20 * 30; i++) check_int(fabs(grad[i] - 1.5 * (i / 30 - 7) * (i % 30 + 1)) < 1e-3, 1);
    }
    ddp_model_destroy(model);
  }
}

check_case(wrong_arguments_are_refused) {
  hooked h;
  memset(&h, 0, sizeof h);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_hook(NULL, average, &h, count_release));
  check_int(h.released, 1);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_powersgd_options_init(NULL, 8));
}

check_case(no_hook_is_the_plain_mean) {
  rank self = {0, 1, alone(), NULL, NULL, NULL};
  hooked h;
  build(&h, &self);
  check_ok(ddp_model_set_hook(h.model, average, &h, count_release));
  check_ok(ddp_model_set_hook(h.model, NULL, NULL, NULL));
  check_int(h.released, 1);
  check_ok(ddp_model_commit(h.model, NULL));
  mark(&h);
  check_ok(ddp_model_end_backward(h.model, NULL));
  check_int(h.calls, 0);
  check_number(h.grad[1][7], 8);
  ddp_model_destroy(h.model);
  ddp_group_destroy(self.group);
}
