/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths that no memory has are refused by every call that takes a tensor, also in a group of one, where nothing would be
 * read. */
#include "support/ranks.h"

check_alone_case(lengths_that_no_machine_can_address_are_refused) {
  static float data[4];
  const int64_t lengths[] = {((int64_t)1 << 61) - 1, (int64_t)1 << 57, INT64_MAX};
  const ddp_dtype types[] = {DDP_F32, DDP_F64, DDP_C64};
  for (int l = 0; l < 3; l++)
    for (int t = 0; t < 3; t++) {
      ddp_tensor tensor = {data, types[t], DDP_CPU, 0, 1, {lengths[l]}}, rows = tensor;
      int64_t index = 0, count = 0;
      ddp_model *model = NULL;
      const ddp_tensor indices = {&index, DDP_I64, DDP_CPU, 0, 1, {1}};
      rows.ndim = 2;
      rows.shape[0] = 1;
      rows.shape[1] = lengths[l];
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &tensor, &tensor, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &tensor, &tensor, DDP_SUM, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_broadcast(group, &tensor, 0, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce_rows(group, &indices, &rows, DDP_SUM, &count, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_rows(group, &indices, &rows));
      check_ok(ddp_model_create(group, NULL, &model));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter(model, "w", &tensor, NULL, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter(model, "w", &tensor, &tensor, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_buffer(model, "b", &tensor, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_array(model, "a", data, NULL, lengths[l], NULL));
      check_int(ddp_model_get_parameter_count(model), 0);
      ddp_model_destroy(model);
    }
}
