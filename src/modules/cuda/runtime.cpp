// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/runtime.hpp"

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "modules/cuda/errors.hpp"
#include "modules/cuda/kernels/launchers.hpp"

namespace ddp::cuda {
namespace {

// What the driver is asked: which device an address belongs to, and whether a device is used. Any thread.
using PointerGetAttributes = CUresult (*)(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer);
using PrimaryContextGetState = CUresult (*)(CUdevice device, unsigned* flags, int* active);

constexpr unsigned kSince = 7000;  // the CUDA version whose form of the functions this is

template <class Function>
cudaError_t find(const char* name, Function& out) noexcept {
  static std::atomic<Function> known{nullptr};  // each function has a type of its own
  out = known.load(std::memory_order_relaxed);
  if (out != nullptr) return cudaSuccess;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &entry, kSince, cudaEnableDefault, &found);
#else
  static_cast<void>(kSince);
  const cudaError_t code = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
  if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) out = reinterpret_cast<Function>(entry);
  known.store(out, std::memory_order_relaxed);
  return code;
}

/// As the table's. Asks the driver itself, because the runtime's question would make a context, some hundred MB, on device 0
/// for a process that has not used its GPU yet.
int32_t pointer_device(const void* memory, int32_t* out_device, int32_t* out_host_reads) noexcept {
  *out_device = -1;
  *out_host_reads = 1;
  PointerGetAttributes attributes_of = nullptr;
  if (const cudaError_t code = find("cuPointerGetAttributes", attributes_of); code != cudaSuccess) {
    static_cast<void>(settled(code));
    const bool no_gpu = code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice || code == cudaErrorStubLibrary;
    return no_gpu ? 0 : static_cast<int32_t>(code);  // without a GPU all memory is the host's
  }
  if (attributes_of == nullptr) return static_cast<int32_t>(cudaErrorSymbolNotFound);
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* results[] = {&type, &managed, &ordinal};
  const CUresult result = attributes_of(3, wanted, results, reinterpret_cast<CUdeviceptr>(memory));
  // An address that the driver does not know is success with type 0. A driver that was not started yet has given out no
  // memory.
  if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT)
    return 0;
  if (result != CUDA_SUCCESS) return static_cast<int32_t>(result);  // the runtime numbers these codes alike
  if (type == CU_MEMORYTYPE_DEVICE || managed != 0) *out_device = ordinal;
  if (type == CU_MEMORYTYPE_DEVICE && managed == 0) *out_host_reads = 0;
  return 0;
}

/// Has this process a primary context on the device? Yes if the driver cannot be asked.
int32_t device_is_used(int32_t device, int32_t* out_used) noexcept {
  *out_used = 1;
  PrimaryContextGetState state_of = nullptr;
  if (const cudaError_t code = find("cuDevicePrimaryCtxGetState", state_of); code != cudaSuccess)
    static_cast<void>(settled(code));
  unsigned flags = 0;
  int active = 1;
  if (state_of != nullptr && state_of(device, &flags, &active) == CUDA_SUCCESS) *out_used = active;
  return 0;
}

cudaStream_t as_stream(void* stream) noexcept { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(void* event) noexcept { return static_cast<cudaEvent_t>(event); }

int32_t driver_version(int32_t* out) noexcept { return settled(cudaDriverGetVersion(out)); }

int32_t device_count(int32_t* out) noexcept {
  *out = 0;
  // A runtime of CUDA 12 takes any driver of CUDA 12, but that of 12.0 cannot launch our kernels.
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0 && driver < kOldestCuda)
    return cudaErrorInsufficientDriver;
  return settled(cudaGetDeviceCount(out));
}

int32_t device_name(int32_t device, char* buffer, int64_t capacity) noexcept {
  cudaDeviceProp properties{};
  const cudaError_t code = cudaGetDeviceProperties(&properties, device);
  if (capacity > 0) std::snprintf(buffer, static_cast<size_t>(capacity), "%s", code == cudaSuccess ? properties.name : "");
  return settled(code);
}

int32_t get_device(int32_t* out) noexcept { return settled(cudaGetDevice(out)); }
int32_t set_device(int32_t device) noexcept { return settled(cudaSetDevice(device)); }
int32_t synchronize() noexcept { return settled(cudaDeviceSynchronize()); }

int32_t load_kernels() noexcept {
  for (const KernelList& list : all_kernels())
    for (int64_t i = 0; i < list.count; ++i) {
      cudaFuncAttributes attributes{};
      if (const cudaError_t code = cudaFuncGetAttributes(&attributes, list.kernels[i]); code != cudaSuccess)
        return settled(code);
    }
  return 0;
}

int32_t alloc(void** out, int64_t bytes) noexcept {
  *out = nullptr;
  return settled(cudaMalloc(out, static_cast<size_t>(bytes)));
}
int32_t release(void* memory) noexcept { return settled(cudaFree(memory)); }

int32_t host_alloc(void** out_host, void** out_device, int64_t bytes) noexcept {
  *out_host = *out_device = nullptr;
  void* host = nullptr;
  if (const cudaError_t code = cudaHostAlloc(&host, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
      code != cudaSuccess)
    return settled(code);
  if (const cudaError_t code = cudaHostGetDevicePointer(out_device, host, 0); code != cudaSuccess) {
    const int32_t result = settled(code);
    static_cast<void>(settled(cudaFreeHost(host)));
    return result;
  }
  std::memset(host, 0, static_cast<size_t>(bytes));
  *out_host = host;
  return 0;
}
int32_t host_free(void* host) noexcept { return settled(cudaFreeHost(host)); }

int32_t stream_create(void** out, int32_t high_priority) noexcept {
  *out = nullptr;
  int least = 0;
  int greatest = 0;
  if (high_priority != 0)
    if (const cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest); code != cudaSuccess)
      return settled(code);
  cudaStream_t stream = nullptr;
  const cudaError_t code = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  *out = stream;
  return settled(code);
}
int32_t stream_destroy(void* stream) noexcept { return settled(cudaStreamDestroy(as_stream(stream))); }
int32_t stream_synchronize(void* stream) noexcept { return settled(cudaStreamSynchronize(as_stream(stream))); }

int32_t stream_is_capturing(void* stream, int32_t* out) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(as_stream(stream), &status);
  *out = status != cudaStreamCaptureStatusNone ? 1 : 0;
  return settled(code);
}

int32_t stream_capture(void* stream, uint64_t* out) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t code = cudaStreamGetCaptureInfo(as_stream(stream), &status, &number);
#else
  const cudaError_t code = cudaStreamGetCaptureInfo_v2(as_stream(stream), &status, &number);
#endif
  *out = status != cudaStreamCaptureStatusNone ? number : 0;
  return settled(code);
}

int32_t event_create(void** out, int32_t timing) noexcept {
  *out = nullptr;
  cudaEvent_t event = nullptr;
  const cudaError_t code = cudaEventCreateWithFlags(&event, timing != 0 ? cudaEventDefault : cudaEventDisableTiming);
  *out = event;
  return settled(code);
}
int32_t event_destroy(void* event) noexcept { return settled(cudaEventDestroy(as_event(event))); }
int32_t event_record(void* event, void* stream) noexcept {
  return settled(cudaEventRecord(as_event(event), as_stream(stream)));
}
int32_t event_synchronize(void* event) noexcept { return settled(cudaEventSynchronize(as_event(event))); }

int32_t event_query(void* event, int32_t* out_done) noexcept {
  const cudaError_t code = cudaEventQuery(as_event(event));
  const int32_t result = settled(code);
  *out_done = code == cudaSuccess ? 1 : 0;
  return code == cudaErrorNotReady ? 0 : result;
}

int32_t event_elapsed(void* from, void* to, double* out_ms) noexcept {
  float milliseconds = 0;
  const cudaError_t code = cudaEventElapsedTime(&milliseconds, as_event(from), as_event(to));
  *out_ms = static_cast<double>(milliseconds);
  return settled(code);
}

int32_t stream_wait(void* stream, void* event) noexcept {
  return settled(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0));
}

int32_t copy(void* to, const void* from, int64_t bytes, void* stream) noexcept {
  if (bytes == 0) return 0;
  return settled(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, as_stream(stream)));
}

int32_t fill(void* memory, int32_t byte, int64_t bytes, void* stream) noexcept {
  if (bytes == 0) return 0;
  return settled(cudaMemsetAsync(memory, byte, static_cast<size_t>(bytes), as_stream(stream)));
}

int32_t relax_capture() noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  return settled(cudaThreadExchangeStreamCaptureMode(&mode));
}

}  // namespace

void fill_runtime(ddp_gpu_table& table) noexcept {
  table.error_name = error_name;
  table.error_text = error_text;
  table.error_kind = error_kind;
  table.driver_version = driver_version;
  table.device_count = device_count;
  table.device_name = device_name;
  table.get_device = get_device;
  table.set_device = set_device;
  table.synchronize = synchronize;
  table.load_kernels = load_kernels;
  table.alloc = alloc;
  table.free = release;
  table.host_alloc = host_alloc;
  table.host_free = host_free;
  table.pointer_device = pointer_device;
  table.device_is_used = device_is_used;
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_is_capturing = stream_is_capturing;
  table.stream_capture = stream_capture;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_synchronize = event_synchronize;
  table.event_query = event_query;
  table.event_elapsed = event_elapsed;
  table.stream_wait = stream_wait;
  table.copy = copy;
  table.fill = fill;
  table.relax_capture = relax_capture;
}

}  // namespace ddp::cuda
