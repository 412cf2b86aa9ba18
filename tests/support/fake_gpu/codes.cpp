// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/codes.hpp"

namespace ddp::test::fake_gpu {
namespace {

struct Row {
  int32_t code;
  int32_t kind;
  const char* name;
  const char* text;
};

constexpr Row kCodes[] = {
    {kOk, DDP_GPU_OK, "fakeSuccess", "no error"},
    {kOutOfMemory, DDP_GPU_OUT_OF_MEMORY, "fakeErrorMemoryAllocation", "out of memory"},
    {kInvalidValue, DDP_GPU_BAD_ARGUMENT, "fakeErrorInvalidValue", "invalid argument"},
    {kInvalidDevice, DDP_GPU_BAD_ARGUMENT, "fakeErrorInvalidDevice", "invalid device ordinal"},
    {kInvalidHandle, DDP_GPU_BAD_ARGUMENT, "fakeErrorInvalidResourceHandle", "invalid resource handle"},
    {kInsufficientDriver, DDP_GPU_NO_DRIVER, "fakeErrorInsufficientDriver", "there is no driver, or it is too old"},
    {kNotSetUp, DDP_GPU_NOT_READY, "fakeErrorSystemNotReady", "the fabric manager does not run"},
    {kNoCode, DDP_GPU_NO_CODE, "fakeErrorNoKernelImageForDevice", "no kernel image is available for the device"},
    {kNoDevice, DDP_GPU_NO_DEVICE, "fakeErrorNoDevice", "no device is detected"},
    {kCaptureUnsupported, DDP_GPU_CAPTURE, "fakeErrorStreamCaptureUnsupported", "not permitted while a stream is capturing"},
    {kCaptureMerge, DDP_GPU_CAPTURE, "fakeErrorStreamCaptureMerge", "two captures would become one"},
    {kCaptureIsolation, DDP_GPU_CAPTURE, "fakeErrorStreamCaptureIsolation", "a dependency on work outside of the capture"},
    {kCapturedEvent, DDP_GPU_CAPTURE, "fakeErrorCapturedEvent", "the event was last recorded in a capturing stream"},
    {kIllegalAddress, DDP_GPU_LOST, "fakeErrorIllegalAddress", "an illegal memory access was encountered"},
    {kNotReady, DDP_GPU_OTHER, "fakeErrorNotReady", "device not ready"},
};
constexpr Row kUnknownRow{kUnknown, DDP_GPU_OTHER, "fakeErrorUnknown", "unknown error"};

constexpr Row kNcclCodes[] = {
    {kNcclOk, DDP_NCCL_OK, "", "no error"},
    {kNcclInProgress, DDP_NCCL_IN_PROGRESS, "", "NCCL operation in progress"},
    {kNcclInvalidUsage, DDP_NCCL_BAD_ARGUMENT, "", "invalid usage"},
    {kNcclInvalidArgument, DDP_NCCL_BAD_ARGUMENT, "", "invalid argument"},
    {kNcclRemote, DDP_NCCL_REMOTE, "", "remote process exited or there was a network error"},
    {kNcclUnhandledCuda, DDP_NCCL_FAILED, "", "unhandled cuda error"},
    {kNcclSystem, DDP_NCCL_FAILED, "", "unhandled system error"},
};
constexpr Row kNcclUnknownRow{kNcclInternal, DDP_NCCL_FAILED, "", "internal error"};

template <size_t N>
const Row& of_code(const Row (&rows)[N], int32_t code, const Row& otherwise) noexcept {
  for (const Row& row : rows)
    if (row.code == code) return row;
  return otherwise;
}

/// The last of a kind is its usual code: the most general one.
template <size_t N>
int32_t of_kind(const Row (&rows)[N], int32_t kind, int32_t otherwise) noexcept {
  int32_t code = otherwise;
  for (const Row& row : rows)
    if (row.kind == kind) code = row.code;
  return code;
}

}  // namespace

const char* code_name(int32_t code) noexcept { return of_code(kCodes, code, kUnknownRow).name; }
const char* code_text(int32_t code) noexcept { return of_code(kCodes, code, kUnknownRow).text; }
int32_t code_kind(int32_t code) noexcept { return of_code(kCodes, code, kUnknownRow).kind; }

int32_t code_of_kind(int32_t kind) noexcept {
  if (kind == DDP_GPU_CAPTURE) return kCaptureUnsupported;
  return kind == DDP_GPU_OTHER ? static_cast<int32_t>(kUnknown) : of_kind(kCodes, kind, kUnknown);
}

const char* nccl_code_text(int32_t code) noexcept { return of_code(kNcclCodes, code, kNcclUnknownRow).text; }
int32_t nccl_code_kind(int32_t code) noexcept { return of_code(kNcclCodes, code, kNcclUnknownRow).kind; }
int32_t nccl_code_of_kind(int32_t kind) noexcept { return of_kind(kNcclCodes, kind, kNcclInternal); }

}  // namespace ddp::test::fake_gpu
