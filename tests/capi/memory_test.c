/* SPDX-License-Identifier: Apache-2.0 */
/* ddp_memory_retain and ddp_memory_release: what libddp handed out stays usable after its owner, and goes with the last
 * hold. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

/* A committed model with one gradient of 1,000 elements that libddp owns. */
static ddp_model *model_of(ddp_group *group, float *value, ddp_tensor *grad) {
  const ddp_tensor tensor = vector_of(value, DDP_F32, 1000);
  ddp_model *model = new_model(group, NULL);
  check_ok(ddp_model_add_parameter(model, "w", &tensor, NULL, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_get_grad(model, 0, grad));
  return model;
}

static void outlive(rank *self) {
  float value[1000] = {0}, *grad, *own = NULL;
  ddp_tensor tensor;
  ddp_model *model = model_of(self->group, value, &tensor);
  grad = tensor.data;
  check_ok(ddp_group_alloc(self->group, 5 << 20, (void **)&own));
  check_ok(ddp_memory_retain(grad));
  check_ok(ddp_memory_retain(grad + 999)); /* the same block once more */
  check_ok(ddp_memory_retain(own + 7));
  for (int i = 0; i < 1000; i++) grad[i] = (float)(i + self->index);
  own[1 << 20] = 3;
  check_ok(ddp_group_free(self->group, own));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_free(self->group, own), "freed already");
  ddp_model_destroy(model);
  check_ok(ddp_group_barrier(self->group));
  ddp_group_destroy(self->group);
  self->group = NULL;
  for (int i = 0; i < 1000; i++) check_number(grad[i], (float)(i + self->index));
  check_number(own[1 << 20], 3);
  grad[0] = own[0] = 4; /* it may be written, too */
  check_ok(ddp_memory_release(grad + 5));
  check_number(grad[0], 4);
  check_ok(ddp_memory_release(grad));
  check_ok(ddp_memory_release(own));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_memory_release(own));
}

check_case(memory_outlives_its_model_and_group) {
  run_ranks(1, "local://one", outlive, NULL);   /* from the heap */
  run_ranks(3, "local://three", outlive, NULL); /* from shared memory */
}

check_case(what_is_held_is_not_handed_out_again) {
  ddp_group *group = alone();
  void *first = NULL, *second = NULL;
  check_ok(ddp_group_alloc(group, 4096, &first));
  memset(first, 9, 4096);
  check_ok(ddp_memory_retain(first));
  check_ok(ddp_group_free(group, first));
  check_ok(ddp_group_alloc(group, 4096, &second));
  check_true(first != second);
  memset(second, 1, 4096);
  check_int(((unsigned char *)first)[4095], 9);
  ddp_group_destroy(group);
  check_int(((unsigned char *)first)[0], 9);
  check_ok(ddp_memory_release(first));
}

check_alone_case(other_addresses_are_refused) {
  float value[1000] = {0};
  ddp_tensor grad;
  ddp_model *model = model_of(group, value, &grad);
  const ddp_status bad = DDP_ERROR_INVALID_ARGUMENT;
  check_error_text(bad, ddp_memory_retain(NULL), "data is NULL");
  check_error_text(bad, ddp_memory_retain(value), "no host memory of libddp");
  check_error_text(bad, ddp_memory_retain(group), "no host memory of libddp");
  check_error_text(bad, ddp_memory_release(value), "retain");
  check_error_text(bad, ddp_memory_release(grad.data), "retain"); /* it is not retained */
  check_ok(ddp_memory_release(NULL));
  ddp_model_destroy(model);
  check_error(bad, ddp_memory_retain(grad.data));
}

/* A model that runs a hook may show its bucket; that memory is the library's, too. */
static int32_t hold_contents(void *user_data, ddp_bucket *bucket) {
  ddp_tensor contents;
  if (ddp_bucket_get_contents(bucket, &contents) != DDP_OK || ddp_memory_retain(contents.data) != DDP_OK) return 1;
  *(float **)user_data = contents.data;
  return 0;
}

check_case(contents_of_a_bucket_can_be_held) {
  float value[4] = {0}, *seen = NULL;
  ddp_tensor grad, tensor = vector_of(value, DDP_F32, 4);
  ddp_group *group = alone();
  ddp_model *model = new_model(group, NULL);
  check_ok(ddp_model_add_parameter(model, "w", &tensor, NULL, NULL));
  check_ok(ddp_model_set_hook(model, hold_contents, &seen, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_get_grad(model, 0, &grad));
  ((float *)grad.data)[3] = 6;
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  check_ok(ddp_model_end_backward(model, NULL));
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  assert_non_null(seen);
  check_number(seen[3], 6);
  check_ok(ddp_memory_release(seen));
}

/* A fork has the parent's pages: memory that it releases must stay as it is here. */
check_ranks_case(a_fork_lets_go_of_nothing, 2) {
  float *own = NULL;
  int status = -1;
  check_ok(ddp_group_alloc(self->group, 4 << 20, (void **)&own));
  own[1 << 19] = 8;
  check_ok(ddp_memory_retain(own));
  if (self->index == 0) {
    const pid_t child = fork();
    if (child == 0) {
      const int failed = ddp_memory_release(own) != DDP_OK;
      ddp_group_destroy(self->group);
      _exit(failed || own[1 << 19] != 8);
    }
    check_int(waitpid(child, &status, 0), child);
    check_int(status, 0);
  }
  check_number(own[1 << 19], 8);
  check_ok(ddp_group_barrier(self->group));
  check_number(own[1 << 19], 8);
  check_ok(ddp_memory_release(own));
}

static int64_t mapped_pages(void) {
  long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  check_int(fscanf(file, "%lld", &pages), 1);
  fclose(file);
  return pages;
}

static void nothing(rank *self) {
  float value[1000] = {0};
  ddp_tensor grad;
  ddp_model *model = model_of(self->group, value, &grad);
  check_ok(ddp_memory_retain(grad.data));
  ddp_model_destroy(model);
  check_ok(ddp_memory_release(grad.data));
}

check_case(many_models_leave_nothing_mapped) {
  run_ranks(2, "local://first", nothing, NULL); /* what threads and the allocator keep is there now */
  const int64_t before = mapped_pages();
  for (int round = 0; round < 20; round++) run_ranks(2, "local://again", nothing, NULL);
  /* One region left behind would be as large as the memory of the machine; stacks and arenas of threads come and go. */
  check_true(mapped_pages() - before < 256 << 8);
}
