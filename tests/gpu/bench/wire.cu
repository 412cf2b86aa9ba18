// SPDX-License-Identifier: Apache-2.0
// A module for measuring overlap with one GPU: the real module's table, with an NCCL that is a simulated wire. Its
// all-reduce is a kernel of 8 to 24 blocks that reads and writes the bucket once and then spins on the GPU's clock until
// bytes / rate has passed: it takes the SMs and the time of communication and changes no number. Rank 0 has the wire; on the
// other ranks nothing runs.
//
// libddp opens this file in the place of the real one (DDP_MODULE_PATH) and knows no difference, so its own streams, events,
// it measures packing and order. DDP_WIRE_REAL names the real file.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/gpu/gpu_abi.h"

namespace {

std::atomic<double> rate{0};  // bytes a nanosecond; 0: nothing is launched
std::atomic<int> blocks{16};
const ddp_gpu_table* real = nullptr;

struct Communicator {
  int32_t rank;
};

__global__ void wire(float4* data, int64_t count, uint64_t nanoseconds) {
  uint64_t start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    float4 four = __ldcg(data + i);
    asm volatile("" : "+f"(four.x)); /* so that the copy onto itself is made */
    __stcg(data + i, four);
  }
  do {
    __nanosleep(100);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

int64_t bytes_of(int64_t count, int32_t dtype) {
  const int64_t sizes[] = {0, 4, 8, 2, 2, 4, 8, 1, 8, 16};
  return dtype > 0 && dtype < 10 ? count * sizes[dtype] : 0;
}

int32_t all_reduce(const void* send, void* receive, int64_t count, int32_t dtype, int32_t, void* comm, void* stream) {
  const int64_t bytes = bytes_of(count, dtype);
  if (send != receive && real->copy(receive, send, bytes, stream) != 0) return 1;
  if (static_cast<Communicator*>(comm)->rank != 0 || rate.load() == 0) return 0;
  const auto duration = static_cast<uint64_t>(static_cast<double>(bytes) / rate.load());
  wire<<<static_cast<unsigned>(blocks.load()), 512, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<float4*>(receive),
                                                                                            bytes / 16, duration);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

ddp_nccl_table make_nccl() {
  ddp_nccl_table t{};
  t.struct_size = sizeof t;
  t.library_version = 22809;
  t.path = "(a simulated wire)";
  t.error_text = [](int32_t code) { return code == 0 ? "no error" : "the wire's kernel could not be launched"; };
  t.error_kind = [](int32_t code) -> int32_t { return code == 0 ? DDP_NCCL_OK : DDP_NCCL_FAILED; };
  t.last_error = [](void*) { return ""; };
  t.get_unique_id = [](void* id) -> int32_t { return std::memset(id, 7, DDP_NCCL_ID_BYTES), 0; };
  t.comm_init = [](void** out, int32_t, const void*, int32_t rank, const char*, int32_t) -> int32_t {
    return *out = new Communicator{rank}, 0;
  };
  t.comm_abort = [](void* comm) -> int32_t { return delete static_cast<Communicator*>(comm), 0; };
  t.comm_finalize = [](void*) -> int32_t { return 0; };
  t.comm_destroy = t.comm_abort;
  t.comm_async_error = [](void*, int32_t* out) -> int32_t { return *out = 0; };
  t.all_reduce = all_reduce;
  t.reduce_scatter = [](const void*, void*, int64_t, int32_t, int32_t, void*, void*) -> int32_t { return 0; };
  t.all_gather = [](const void*, void*, int64_t, int32_t, void*, void*) -> int32_t { return 0; };
  t.broadcast = [](const void*, void*, int64_t, int32_t, int32_t, void*, void*) -> int32_t { return 0; };
  t.group_start = []() -> int32_t { return 0; };
  t.group_end = t.group_start;
  t.mem_alloc = [](void** out, int64_t bytes) { return real->alloc(out, bytes); };
  t.mem_free = [](void* memory) { return real->free(memory); };
  t.comm_register = [](void*, void*, int64_t, void** out) -> int32_t { return *out = nullptr, 0; };
  t.comm_deregister = [](void*, void*) -> int32_t { return 0; };
  return t;
}

int32_t open_nccl(const char*, const ddp_nccl_table** out, char*, int64_t) {
  static const ddp_nccl_table table = make_nccl();
  *out = &table;
  return 0;
}

const ddp_gpu_table* open_real(int32_t version) {
  const char* const file = std::getenv("DDP_WIRE_REAL");
  void* const library = file != nullptr ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) return nullptr;
  const auto query = reinterpret_cast<ddp_gpu_query_fn>(dlsym(library, DDP_GPU_QUERY_NAME));
  return query != nullptr ? query(version) : nullptr;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const ddp_gpu_table* ddp_gpu_query(int32_t version) {
  static const ddp_gpu_table* const found = open_real(version);
  if (found == nullptr) return nullptr;
  real = found;
  static const ddp_gpu_table table = [] {
    ddp_gpu_table copy = *real;
    copy.open_nccl = open_nccl;
    return copy;
  }();
  return &table;
}

/* For the benchmark: bytes a nanosecond (0: no wire), and how many blocks the wire takes. */
__attribute__((visibility("default"))) void ddp_wire_set(double bytes_per_ns, int32_t block_count) {
  rate = bytes_per_ns;
  blocks = block_count;
}
}
