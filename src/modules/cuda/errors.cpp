// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/errors.hpp"

#include "device/gpu/gpu_abi.h"

namespace ddp::cuda {

const char* error_name(int32_t code) noexcept { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
const char* error_text(int32_t code) noexcept { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

namespace {

/// The context is lost, and every later call fails.
bool is_sticky(int32_t code) noexcept {
  switch (static_cast<int>(code)) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorCudartUnloading:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
      return true;
    default: return false;
  }
}

}  // namespace

int32_t error_kind(int32_t code) noexcept {
  switch (static_cast<int>(code)) {
    case cudaSuccess: return DDP_GPU_OK;
    case cudaErrorMemoryAllocation: return DDP_GPU_OUT_OF_MEMORY;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered: return DDP_GPU_BAD_ARGUMENT;
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return DDP_GPU_NO_DRIVER;
    case cudaErrorNoDevice: return DDP_GPU_NO_DEVICE;
    case cudaErrorSystemNotReady: return DDP_GPU_NOT_READY;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled: return DDP_GPU_NO_CODE;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread: return DDP_GPU_CAPTURE;
    default: return is_sticky(code) ? DDP_GPU_LOST : DDP_GPU_OTHER;
  }
}

}  // namespace ddp::cuda
