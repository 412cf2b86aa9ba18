/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse sums and complex numbers through the C API; ranks are threads. */
#include "support/ranks.h"

static ddp_tensor rows_of(void *data, ddp_dtype dtype, int64_t count, int64_t width) {
  const int64_t shape[2] = {count, width};
  ddp_tensor tensor;
  check_ok(ddp_tensor_init(&tensor, data, dtype, 2, shape));
  return tensor;
}

/* Rank 0 has the rows 7 and 2 (twice), rank 1 the row 7, rank 2 none. */
check_ranks_case(all_ranks_get_the_union, 3) {
  int64_t index[3] = {7, 2, 2}, got[2] = {0, 0}, count = -1;
  float row[3][2] = {{3, 6}, {1, 2}, {10, 20}}, sum[2][2];
  const int64_t given = self->index == 0 ? 3 : self->index == 1 ? 1 : 0;
  const ddp_tensor indices = vector_of(index, DDP_I64, given), rows = rows_of(row, DDP_F32, given, 2);
  const ddp_tensor out_indices = vector_of(got, DDP_I64, 2), out_rows = rows_of(sum, DDP_F32, 2, 2);
  check_ok(ddp_group_all_reduce_rows(self->group, &indices, &rows, DDP_AVERAGE, &count, NULL));
  check_int(count, 2);
  check_ok(ddp_group_get_rows(self->group, &out_indices, &out_rows));
  check_int(got[0], 2);
  check_int(got[1], 7);
  check_number(sum[0][0], 11.0f / 3);
  check_number(sum[0][1], 22.0f / 3);
  check_number(sum[1][0], 2);
  check_number(sum[1][1], 4);
}

check_case(wrong_arguments_are_refused) {
  int64_t index[2] = {0, -1}, count = -7;
  int32_t small[2] = {0, 1};
  float row[2][2] = {{1, 2}, {3, 4}};
  ddp_group *group = alone();
  const ddp_tensor indices = vector_of(index, DDP_I64, 2), one = vector_of(index, DDP_I64, 1),
                   narrow = vector_of(small, DDP_I32, 2);
  const ddp_tensor rows = rows_of(row, DDP_F32, 2, 2), first = rows_of(row, DDP_F32, 1, 2),
                   wide = rows_of(row, DDP_F32, 1, 4);
  const ddp_status bad = DDP_ERROR_INVALID_ARGUMENT;
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_group_get_rows(group, &one, &first), "no result");
  check_error_text(bad, ddp_group_all_reduce_rows(group, NULL, &first, DDP_SUM, &count, NULL), "indices is NULL");
  check_error_text(bad, ddp_group_all_reduce_rows(group, &one, NULL, DDP_SUM, &count, NULL), "rows is NULL");
  check_error_text(bad, ddp_group_all_reduce_rows(group, &one, &first, DDP_SUM, NULL, NULL), "out_count is NULL");
  check_error_text(bad, ddp_group_all_reduce_rows(group, &one, &first, DDP_MAX, &count, NULL), "op is 3");
  check_error_text(bad, ddp_group_all_reduce_rows(group, &narrow, &rows, DDP_SUM, &count, NULL), "I64");
  check_error_text(bad, ddp_group_all_reduce_rows(group, &one, &rows, DDP_SUM, &count, NULL), "number of indices");
  check_error_text(bad, ddp_group_all_reduce_rows(group, &indices, &rows, DDP_SUM, &count, NULL), "index 1 is -1");
  check_int(count, -7);
  check_ok(ddp_group_all_reduce_rows(group, &one, &first, DDP_SUM, &count, NULL));
  check_int(count, 1);
  check_error_text(bad, ddp_group_get_rows(group, &indices, &rows), "1 indices");
  check_error_text(bad, ddp_group_get_rows(group, &one, &wide), "2 F32");
  check_error_text(bad, ddp_group_get_rows(group, NULL, &first), "indices is NULL");
  check_error_text(bad, ddp_group_get_rows(group, &one, NULL), "rows is NULL");
  check_ok(ddp_group_get_rows(group, &one, &first));
  ddp_group_destroy(group);
  check_error(bad, ddp_group_get_rows(group, &one, &first));
}

check_ranks_case(complex_gradients_are_averaged, 2) {
  float z[3][2] = {{1, 2}, {3, 4}, {5, 6}}; /* three numbers; aligned to a part alone */
  ddp_tensor grad, value = vector_of(z, DDP_C64, 3);
  check_ok(ddp_group_all_reduce(self->group, &value, DDP_SUM, NULL));
  check_number(z[1][1], 8);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(self->group, &value, DDP_MIN, NULL), "no minimum");
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_parameter(model, "z", &value, NULL, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_get_grad(model, 0, &grad));
  check_int(grad.dtype, DDP_C64);
  check_int(grad.ndim, 1);
  check_int(grad.shape[0], 3);
  float *parts = grad.data;
  for (int i = 0; i < 6; i++) parts[i] = (float)(i + self->index);
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  check_ok(ddp_model_end_backward(model, NULL));
  for (int i = 0; i < 6; i++) check_number(parts[i], i + 0.5);
  ddp_model_destroy(model);
}
