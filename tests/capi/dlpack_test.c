/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/dlpack.h: tensors of other libraries as libddp's, and back. */
#if __has_include(<dlpack/dlpack.h>)
#include "ddp/dlpack.h"

#include "support/ranks.h"

static DLTensor given_of(void *data, DLDataTypeCode code, int bits, int ndim, int64_t *shape) {
  DLTensor given;
  memset(&given, 0, sizeof given);
  given.data = data;
  given.device.device_type = kDLCPU;
  given.ndim = ndim;
  given.dtype.code = (uint8_t)code;
  given.dtype.bits = (uint8_t)bits;
  given.dtype.lanes = 1;
  given.shape = shape;
  return given;
}

check_case(every_element_type_goes_there_and_back) {
  static const struct {
    DLDataTypeCode code;
    int bits;
    ddp_dtype dtype;
  } types[] = {{kDLFloat, 32, DDP_F32},   {kDLFloat, 64, DDP_F64},   {kDLFloat, 16, DDP_F16},
               {kDLBfloat, 16, DDP_BF16}, {kDLInt, 32, DDP_I32},     {kDLInt, 64, DDP_I64},
               {kDLUInt, 8, DDP_U8},      {kDLComplex, 64, DDP_C64}, {kDLComplex, 128, DDP_C128}};
  double memory[32];
  int64_t shape[] = {2, 3};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    const DLTensor given = given_of(memory, types[i].code, types[i].bits, 2, shape);
    ddp_tensor tensor;
    check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_OK);
    check_int(tensor.dtype, types[i].dtype);
    check_int(tensor.device, DDP_CPU);
    check_int(tensor.ndim, 2);
    check_int(tensor.shape[1], 3);
    check_true(tensor.data == (void *)memory);
    DLTensor back;
    check_int(ddp_tensor_to_dlpack(&tensor, &back), DDP_OK);
    check_true(back.data == (void *)memory && back.shape == tensor.shape && back.strides == NULL);
    check_int(back.dtype.code, (int)types[i].code);
    check_int(back.dtype.bits, types[i].bits);
    check_int(back.dtype.lanes, 1);
    check_int(back.byte_offset, 0);
    check_int(back.device.device_type, kDLCPU);
  }
}

check_case(what_libddp_cannot_read_is_refused) {
  float memory[64];
  int64_t shape[] = {4, 1, 2, 1, 1, 1, 1, 1, 1}, rows[] = {2, 7, 1}, columns[] = {1, 1, 4}, negative[] = {4, -1};
  ddp_tensor tensor;
  memset(&tensor, 7, sizeof tensor);
  const ddp_tensor before = tensor;
  DLTensor given = given_of(memory, kDLFloat, 32, 3, shape);
  given.strides = columns;
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_NOT_SUPPORTED);
  given = given_of(memory, kDLFloat, 32, 9, shape);
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_NOT_SUPPORTED);
  given = given_of(memory, kDLFloat, 8, 1, shape);
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_NOT_SUPPORTED);
  given = given_of(memory, kDLFloat, 32, 1, shape);
  given.dtype.lanes = 4;
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_NOT_SUPPORTED);
  given = given_of(memory, kDLFloat, 32, 1, shape);
  given.device.device_type = kDLOpenCL;
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_NOT_SUPPORTED);
  given = given_of(memory, kDLFloat, 32, 2, negative);
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_INVALID_ARGUMENT);
  given = given_of(memory, kDLFloat, 32, 2, NULL);
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_ERROR_INVALID_ARGUMENT);
  check_int(ddp_tensor_from_dlpack(NULL, &tensor), DDP_ERROR_INVALID_ARGUMENT);
  check_int(ddp_tensor_from_dlpack(&given, NULL), DDP_ERROR_INVALID_ARGUMENT);
  check_true(memcmp(&tensor, &before, sizeof tensor) == 0);

  given = given_of(memory, kDLFloat, 32, 3, shape);
  given.strides = rows; /* the stride of an axis of length 1 does not matter */
  given.byte_offset = 8;
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_OK);
  check_true(tensor.data == memory + 2);
  given.device.device_type = kDLCUDA;
  given.device.device_id = 3;
  check_int(ddp_tensor_from_dlpack(&given, &tensor), DDP_OK);
  check_int(tensor.device, DDP_CUDA);
  check_int(tensor.device_index, 3);
  DLTensor back;
  check_int(ddp_tensor_to_dlpack(&tensor, &back), DDP_OK);
  check_int(back.device.device_type, kDLCUDA);
  check_int(back.device.device_id, 3);
  tensor.dtype = (ddp_dtype)10;
  check_int(ddp_tensor_to_dlpack(&tensor, &back), DDP_ERROR_INVALID_ARGUMENT);
  tensor.dtype = (ddp_dtype)0;
  check_int(ddp_tensor_to_dlpack(&tensor, &back), DDP_ERROR_INVALID_ARGUMENT);
  check_int(ddp_tensor_to_dlpack(NULL, &back), DDP_ERROR_INVALID_ARGUMENT);
}

check_alone_case(a_model_takes_what_comes_of_it) {
  float value[6] = {1, 2, 3, 4, 5, 6}, grad[6] = {0};
  int64_t shape[] = {2, 3};
  const DLTensor w = given_of(value, kDLFloat, 32, 2, shape), g = given_of(grad, kDLFloat, 32, 2, shape);
  ddp_tensor of_w, of_g;
  check_int(ddp_tensor_from_dlpack(&w, &of_w), DDP_OK);
  check_int(ddp_tensor_from_dlpack(&g, &of_g), DDP_OK);
  ddp_model *model = new_model(group, NULL);
  check_ok(ddp_model_add_parameter(model, "w", &of_w, &of_g, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_set_grad(model, 0, &of_g));
  ddp_model_destroy(model);
}
#else
#include <stdio.h>

int main(void) {
  puts("skipped: dlpack/dlpack.h is not here (Debian: libdlpack-dev)");
  return 77;
}
#endif
