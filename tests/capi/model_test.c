/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/model.h on one rank: memory that may be lent, in which state, and the results of the getters. */
#include "support/ranks.h"

check_case(options_have_the_documented_defaults) {
  check_defaults(model_options, options);
  check_int(options.struct_size, sizeof options);
  check_int(options.first_bucket_bytes, 1 << 20);
  check_int(options.bucket_bytes, 0);
  check_int(options.own_values, 0);
  check_int(options.reduce, DDP_AVERAGE);
  check_int(options.unused, DDP_UNUSED_ERROR);
  check_int(options.progress, DDP_PROGRESS_AUTO);
}

check_case(create_refuses_wrong_arguments) {
  ddp_group *group = alone();
  ddp_model *model = garbage;
  ddp_model_options options;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, NULL, NULL));
#define REFUSED(member, value)                                                          \
  do {                                                                                  \
    check_ok(ddp_model_options_init(&options, sizeof options));                         \
    options.member = (value);                                                           \
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, &options, &model)); \
  } while (0)
  REFUSED(struct_size, 0);
  REFUSED(first_bucket_bytes, 0);
  REFUSED(bucket_bytes, -1);
  REFUSED(own_values, 2);
  REFUSED(reduce, DDP_MIN);
  REFUSED(reduce, (ddp_reduce)9);
  REFUSED(unused, (ddp_unused)2);
  REFUSED(progress, (ddp_progress)3);
#undef REFUSED
  check_true(model == (ddp_model *)garbage);
  ddp_group_destroy(group);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_create(group, NULL, &model));
}

/* A group and an empty model, and a parameter's memory. */
typedef struct fixture {
  ddp_group *group;
  ddp_model *model;
  float value[4], grad[4];
  ddp_tensor value_tensor, grad_tensor;
} fixture;

static void open_fixture(fixture *f) {
  memset(f, 0, sizeof *f);
  f->group = alone();
  check_ok(ddp_model_create(f->group, NULL, &f->model));
  f->value_tensor = vector_of(f->value, DDP_F32, 4);
  f->grad_tensor = vector_of(f->grad, DDP_F32, 4);
}

static void close_fixture(fixture *f) {
  ddp_model_destroy(f->model);
  ddp_group_destroy(f->group);
}

check_fixture_case(parameters_are_numbered_in_order, open_fixture(f)) {
  int32_t index = -5;
  check_int(ddp_model_get_parameter_count(f->model), 0);
  check_ok(ddp_model_add_parameter(f->model, "a", &f->value_tensor, &f->grad_tensor, &index));
  check_int(index, 0);
  float more[2] = {0};
  const ddp_tensor second = vector_of(more, DDP_F32, 2);
  check_ok(ddp_model_add_parameter(f->model, "b", &second, NULL, &index));
  check_int(index, 1);
  int64_t table[3] = {0};
  const ddp_tensor buffer = vector_of(table, DDP_I64, 3);
  check_ok(ddp_model_add_buffer(f->model, "table", &buffer, &index));
  check_int(ddp_model_get_parameter_count(f->model), 2);
}

check_case(an_array_is_a_flat_parameter) {
  fixture f;
  ddp_tensor grad;
  float value[3] = {1, 2, 3}, own[3] = {4, 5, 6}, more[2] = {0};
  int32_t index = -5;
  open_fixture(&f);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(f.model, NULL, value, own, 3, &index));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(f.model, "a", NULL, own, 3, &index), "parameter \"a\"");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(f.model, "a", value, own, -1, &index), "parameter \"a\"");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(f.model, "a", value, value, 3, &index));
  check_int(index, -5);
  check_ok(ddp_model_add_array(f.model, "a", value, own, 3, &index));
  check_int(index, 0);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(f.model, "a", more, NULL, 2, NULL));
  check_ok(ddp_model_add_array(f.model, "b", more, NULL, 2, NULL));
  check_ok(ddp_model_commit(f.model, NULL));
  check_ok(ddp_model_get_grad(f.model, 0, &grad));
  check_true(grad.data == own && grad.dtype == DDP_F32 && grad.ndim == 1 && grad.shape[0] == 3);
  check_ok(ddp_model_get_grad(f.model, 1, &grad));
  check_true(grad.data != NULL && grad.ndim == 1 && grad.shape[0] == 2);
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_add_array(f.model, "c", more, NULL, 2, NULL));
  close_fixture(&f);
}

check_fixture_case(add_refuses_what_cannot_be_lent, open_fixture(f)) {
  int32_t index = -5;
  float wide[8] = {0};
  int64_t whole[4] = {0};
  char long_name[1026];
  memset(long_name, 'n', sizeof long_name);
  long_name[1025] = '\0';
  const ddp_tensor longer = vector_of(wide, DDP_F32, 8), integers = vector_of(whole, DDP_I64, 4),
                   doubles = vector_of(wide, DDP_F64, 4), overlapping = vector_of(f->value + 2, DDP_F32, 2);
  ddp_tensor on_gpu = f->value_tensor, broken = f->value_tensor;
  on_gpu.device = DDP_CUDA;
  broken.ndim = -1;
  const ddp_status bad = DDP_ERROR_INVALID_ARGUMENT;
  check_error(bad, ddp_model_add_parameter(f->model, NULL, &f->value_tensor, NULL, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "", &f->value_tensor, NULL, &index));
  check_error(bad, ddp_model_add_parameter(f->model, long_name, &f->value_tensor, NULL, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "not \xff UTF-8", &f->value_tensor, NULL, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "a", NULL, NULL, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "a", &broken, NULL, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "a", &f->value_tensor, &longer, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "a", &f->value_tensor, &doubles, &index));
  check_error(bad, ddp_model_add_parameter(f->model, "a", &f->value_tensor, &f->value_tensor, &index));
  check_error(DDP_ERROR_NOT_SUPPORTED, ddp_model_add_parameter(f->model, "whole", &integers, NULL, &index));
  check_error(DDP_ERROR_NOT_SUPPORTED, ddp_model_add_parameter(f->model, "gpu", &on_gpu, NULL, &index));
  check_int(ddp_model_get_parameter_count(f->model), 0);

  check_ok(ddp_model_add_parameter(f->model, "a", &f->value_tensor, &f->grad_tensor, NULL));
  check_error_text(bad, ddp_model_add_parameter(f->model, "a", &longer, NULL, &index), "a");
  check_error_text(bad, ddp_model_add_parameter(f->model, "b", &overlapping, NULL, &index), "b");
  check_error(bad, ddp_model_add_buffer(f->model, "a", &integers, &index));
  check_error(bad, ddp_model_add_buffer(f->model, "grad again", &f->grad_tensor, &index));
  check_error(bad, ddp_model_add_buffer(f->model, NULL, &integers, &index));
  check_error(bad, ddp_model_add_buffer(f->model, "c", NULL, &index));
  check_int(index, -5);
  check_int(ddp_model_get_parameter_count(f->model), 1);
}

check_fixture_case(calls_before_commit_are_refused, open_fixture(f)) {
  ddp_tensor out;
  double norm = -1;
  int64_t needed = -1;
  ddp_model_stats stats;
  stats.struct_size = sizeof stats;
  check_ok(ddp_model_add_parameter(f->model, "mine", &f->value_tensor, &f->grad_tensor, NULL));
  float other[2] = {0};
  const ddp_tensor second = vector_of(other, DDP_F32, 2);
  check_ok(ddp_model_add_parameter(f->model, "yours", &second, NULL, NULL));
  const ddp_status state_error = DDP_ERROR_INVALID_STATE;
  check_error(state_error, ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  check_error(state_error, ddp_model_mark_ready(f->model, 0, NULL));
  check_error(state_error, ddp_model_mark_range_ready(f->model, 0, 0, 1, NULL));
  check_error(state_error, ddp_model_mark_unused(f->model, 0));
  check_error(state_error, ddp_model_end_backward(f->model, NULL));
  check_error(state_error, ddp_model_sync_buffers(f->model, 0, NULL));
  check_error(state_error, ddp_model_check_replicas(f->model, NULL));
  check_error(state_error, ddp_model_get_stats(f->model, &stats));
  check_error(state_error, ddp_model_describe_plan(f->model, NULL, 0, &needed));
  check_error(state_error, ddp_model_get_grad(f->model, 1, &out));
  check_int(ddp_model_was_used(f->model, 0), -1);
  check_number(norm, -1);
  check_ok(ddp_model_get_grad(f->model, 0, &out)); /* its place is known */
  check_true(out.data == f->grad);
}

check_fixture_case(commit_ends_registration, open_fixture(f)) {
  ddp_tensor mine, yours;
  float other[2] = {0}, moved[4] = {0};
  const ddp_tensor second = vector_of(other, DDP_F32, 2), third = vector_of(moved, DDP_F32, 4);
  check_ok(ddp_model_add_parameter(f->model, "mine", &f->value_tensor, &f->grad_tensor, NULL));
  check_ok(ddp_model_add_parameter(f->model, "yours", &second, NULL, NULL));
  check_ok(ddp_model_commit(f->model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_commit(f->model, NULL),
                   "ddp_model_commit: the model is already committed");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_add_parameter(f->model, "late", &third, NULL, NULL),
                   "ddp_model_add_parameter: the model is committed");
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_add_array(f->model, "late", moved, NULL, 4, NULL),
                   "ddp_model_add_array: the model is committed");
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_add_buffer(f->model, "late", &third, NULL));

  check_ok(ddp_model_get_grad(f->model, 0, &mine));
  check_true(mine.data == f->grad);
  check_ok(ddp_model_get_grad(f->model, 1, &yours));
  check_int(yours.dtype, DDP_F32);
  check_int(yours.ndim, 1);
  check_int(yours.shape[0], 2);
  check_int((uintptr_t)yours.data % 64, 0);
  if (yours.data != NULL) check_number(((float *)yours.data)[1], 0);

  ddp_tensor there = mine;
  there.data = moved;
  check_ok(ddp_model_set_grad(f->model, 0, &there));
  check_ok(ddp_model_get_grad(f->model, 0, &mine));
  check_true(mine.data == moved);
  const int64_t count = mine.shape[0] * (mine.ndim > 1 ? mine.shape[1] : 1);
  const ddp_tensor flat = vector_of(moved, DDP_F32, count);
  check_ok(ddp_model_set_grad(f->model, 0, &flat)); /* the shape does not matter */
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_set_grad(f->model, 1, &yours));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, 0, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, 2, &flat));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, -1, &flat));
  ddp_tensor wrong = flat;
  wrong.data = NULL;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, 0, &wrong), "NULL data pointer");
  wrong = vector_of(moved, DDP_F32, count - 1);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, 0, &wrong), "number of elements");
  wrong = vector_of(moved, DDP_I32, count);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, 0, &wrong), "I32");
  wrong = flat;
  wrong.device = DDP_CUDA;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_grad(f->model, 0, &wrong), "same memory");
  check_ok(ddp_model_get_grad(f->model, 0, &mine));
  check_true(mine.data == moved);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_grad(f->model, 2, &mine));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_grad(f->model, 0, NULL));
}

check_fixture_case(reports_describe_the_plan, open_fixture(f)) {
  ddp_model_stats stats;
  int64_t needed = 0, hash = 0, changed = 0;
  char text[4096], cut[6];
  check_ok(ddp_model_add_parameter(f->model, "layer.weight", &f->value_tensor, &f->grad_tensor, NULL));
  check_ok(ddp_model_commit(f->model, NULL));

  memset(&stats, 0xee, sizeof stats);
  stats.struct_size = sizeof stats;
  check_ok(ddp_model_get_stats(f->model, &stats));
  check_int(stats.struct_size, sizeof stats);
  check_int(stats.parameters, 1);
  check_int(stats.elements, 4);
  check_int(stats.buckets, 1);
  check_int(stats.passes, 0);
  check_int(stats.gradient_bytes, 16);
  stats.struct_size = 24; /* an older program: nothing behind its members is written */
  stats.buckets = -9;
  check_ok(ddp_model_get_stats(f->model, &stats));
  check_int(stats.buckets, -9);
  stats.struct_size = 0;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_stats(f->model, &stats));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_stats(f->model, NULL));

  check_ok(ddp_model_describe_plan(f->model, NULL, 0, &needed));
  check_true(needed > 1 && needed < (int64_t)sizeof text);
  check_ok(ddp_model_describe_plan(f->model, text, sizeof text, NULL));
  check_int(strlen(text) + 1, needed);
  check_text(text, "layer.weight");
  check_ok(ddp_model_describe_plan(f->model, cut, sizeof cut, &needed));
  check_int(strlen(cut), 5);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_describe_plan(f->model, NULL, 5, &needed));

  check_ok(ddp_model_get_hash(f->model, &hash));
  f->value[3] = 1;
  check_ok(ddp_model_get_hash(f->model, &changed));
  check_true(hash != changed);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_hash(f->model, NULL));
  check_ok(ddp_model_check_replicas(f->model, NULL));
  check_ok(ddp_model_sync_buffers(f->model, 0, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_sync_buffers(f->model, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_sync_buffers(f->model, -1, NULL));
}

check_case(a_model_outlives_its_group_as_an_object) {
  fixture f;
  open_fixture(&f);
  check_ok(ddp_model_add_parameter(f.model, "a", &f.value_tensor, &f.grad_tensor, NULL));
  check_ok(ddp_model_commit(f.model, NULL));
  ddp_group_destroy(f.group);
  check_int(ddp_model_get_parameter_count(f.model), 1);
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_check_replicas(f.model, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_sync_buffers(f.model, 0, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_begin_backward(f.model, DDP_PASS_REDUCE));
  ddp_model_destroy(f.model);
}

check_case(values_may_move_to_the_library) {
  for (int32_t own = 0; own <= 1; ++own) {
    fixture f;
    open_fixture(&f);
    ddp_model_destroy(f.model);
    check_defaults(model_options, options);
    options.own_values = own;
    check_ok(ddp_model_create(f.group, &options, &f.model));
    const float start[4] = {1, 2, 3, 4};
    memcpy(f.value, start, sizeof start);
    check_ok(ddp_model_add_parameter(f.model, "a", &f.value_tensor, &f.grad_tensor, NULL));
    ddp_tensor value;
    check_ok(ddp_model_get_value(f.model, 0, &value));
    check_true(value.data == f.value);
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_value(f.model, 1, &value));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_value(f.model, 0, NULL));
    check_ok(ddp_model_commit(f.model, NULL));
    check_ok(ddp_model_get_value(f.model, 0, &value));
    check_true((value.data == f.value) == (own == 0));
    check_int(value.ndim, 1);
    check_int(value.shape[0], 4);
    check_true(memcmp(value.data, start, sizeof start) == 0);
    close_fixture(&f);
  }
}
