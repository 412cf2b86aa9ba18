/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * DLPack: a tensor of another library as a ddp_tensor, and back, without a copy. This header alone: it calls nothing of the
 * library. It includes dlpack/dlpack.h, of DLPack 0.6 or newer, unless the program has included a copy of it before. Neither
 * libddp nor its other headers need DLPack.
 */
#ifndef DDP_DLPACK_H
#define DDP_DLPACK_H

#include <stddef.h>

#include "ddp/types.h"

#if !defined(DLPACK_VERSION) && !defined(DLPACK_MAJOR_VERSION)
#include <dlpack/dlpack.h>
#endif

#ifdef __cplusplus
#define DDP_DLPACK_BYTES(data) static_cast<char *>(data)
#else
#define DDP_DLPACK_BYTES(data) ((char *)(data))
#endif

/**
 * The element type of libddp for one of DLPack.
 * @param type of a DLTensor
 * @param out_dtype untouched unless DDP_OK is returned
 * Local, any thread. Errors: INVALID_ARGUMENT (NULL), NOT_SUPPORTED (libddp has no such type; vectors). Since 0.1.
 */
static inline ddp_status ddp_dtype_from_dlpack(DLDataType type, ddp_dtype *out_dtype) {
  static const struct {
    int code, bits;
    ddp_dtype dtype;
  } known[] = {{kDLFloat, 32, DDP_F32},   {kDLFloat, 64, DDP_F64},   {kDLFloat, 16, DDP_F16},
               {kDLBfloat, 16, DDP_BF16}, {kDLInt, 32, DDP_I32},     {kDLInt, 64, DDP_I64},
               {kDLUInt, 8, DDP_U8},      {kDLComplex, 64, DDP_C64}, {kDLComplex, 128, DDP_C128}};
  size_t i;
  if (out_dtype == NULL) return DDP_ERROR_INVALID_ARGUMENT;
  for (i = 0; i < sizeof known / sizeof known[0]; i++)
    if (type.lanes == 1 && type.code == known[i].code && type.bits == known[i].bits) {
      *out_dtype = known[i].dtype;
      return DDP_OK;
    }
  return DDP_ERROR_NOT_SUPPORTED;
}

/**
 * Describe the memory of a DLPack tensor. It is borrowed: whoever owns the DLTensor keeps it for as long as libddp uses it.
 * @param given dense and row-major; strides may be NULL. Pinned host memory of CUDA counts as host memory
 * @param out_tensor untouched unless DDP_OK is returned
 * Local, any thread. Errors: INVALID_ARGUMENT (NULL, a negative size), NOT_SUPPORTED (element type, device, more than
 * DDP_MAX_DIMENSIONS dimensions, not dense and row-major). ddp_last_error does not change. Since 0.1.
 */
static inline ddp_status ddp_tensor_from_dlpack(const DLTensor *given, ddp_tensor *out_tensor) {
  ddp_tensor made;
  ddp_status status;
  int64_t expected = 1;
  int32_t d;
  int is_empty = 0;
  if (given == NULL || out_tensor == NULL || given->ndim < 0) return DDP_ERROR_INVALID_ARGUMENT;
  if (given->ndim > 0 && given->shape == NULL) return DDP_ERROR_INVALID_ARGUMENT;
  if (given->ndim > DDP_MAX_DIMENSIONS) return DDP_ERROR_NOT_SUPPORTED;
  status = ddp_dtype_from_dlpack(given->dtype, &made.dtype);
  if (status != DDP_OK) return status;
  switch (given->device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      made.device = DDP_CPU;
      made.device_index = 0;
      break;
    case kDLCUDA:
      made.device = DDP_CUDA;
      made.device_index = given->device.device_id;
      break;
    default: return DDP_ERROR_NOT_SUPPORTED;
  }
  made.ndim = given->ndim;
  for (d = 0; d < DDP_MAX_DIMENSIONS; d++) made.shape[d] = d < made.ndim ? given->shape[d] : 0;
  for (d = 0; d < made.ndim; d++) {
    if (made.shape[d] < 0) return DDP_ERROR_INVALID_ARGUMENT;
    if (made.shape[d] == 0) is_empty = 1;
  }
  for (d = made.ndim; d-- > 0 && !is_empty && given->strides != NULL;) { /* a stride that is never taken does not matter */
    if (made.shape[d] != 1 && given->strides[d] != expected) return DDP_ERROR_NOT_SUPPORTED;
    expected *= made.shape[d];
  }
  made.data = given->data == NULL ? NULL : DDP_DLPACK_BYTES(given->data) + given->byte_offset;
  *out_tensor = made;
  return DDP_OK;
}

/**
 * Describe a tensor for a library that takes DLPack. Its shape stays where it is, in `tensor`, which must live as long as
 * the DLTensor is used.
 * @param tensor as a getter of libddp gave it
 * @param out_given no strides: row-major; untouched unless DDP_OK is returned
 * Local, any thread. Errors: INVALID_ARGUMENT (NULL, a dtype or device that does not exist). Since 0.1.
 */
static inline ddp_status ddp_tensor_to_dlpack(ddp_tensor *tensor, DLTensor *out_given) {
  static const struct {
    unsigned char code, bits;
  } types[] = {{0, 0},       {kDLFloat, 32}, {kDLFloat, 64}, {kDLFloat, 16},   {kDLBfloat, 16},
               {kDLInt, 32}, {kDLInt, 64},   {kDLUInt, 8},   {kDLComplex, 64}, {kDLComplex, 128}}; /* by ddp_dtype */
  DLTensor made;
  if (tensor == NULL || out_given == NULL) return DDP_ERROR_INVALID_ARGUMENT;
  if (tensor->dtype < DDP_F32 || tensor->dtype > DDP_C128) return DDP_ERROR_INVALID_ARGUMENT;
  if (tensor->device != DDP_CPU && tensor->device != DDP_CUDA) return DDP_ERROR_INVALID_ARGUMENT;
  made.data = tensor->data;
  made.device.device_type = tensor->device == DDP_CUDA ? kDLCUDA : kDLCPU;
  made.device.device_id = tensor->device == DDP_CUDA ? tensor->device_index : 0;
  made.ndim = tensor->ndim;
  made.dtype.code = types[tensor->dtype].code;
  made.dtype.bits = types[tensor->dtype].bits;
  made.dtype.lanes = 1;
  made.shape = tensor->shape;
  made.strides = NULL;
  made.byte_offset = 0;
  *out_given = made;
  return DDP_OK;
}

#undef DDP_DLPACK_BYTES
#endif
