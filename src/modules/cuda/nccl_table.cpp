// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/nccl_table.hpp"

#include <cstdio>
#include <exception>
#include <mutex>
#include <set>
#include <string>

#include "ddp/types.h"
#include "modules/cuda/errors.hpp"
#include "modules/cuda/nccl_loader.hpp"

namespace ddp::cuda {
namespace {

using nccl::Comm;
using nccl::DataType;
using nccl::RedOp;

/// The one NCCL of this process. Lives as long as the process: NCCL's threads may outlast the code that opened it.
struct Opened {
  std::mutex mutex;
  bool open = false;
  std::string asked;
  nccl::Library library;
  std::set<std::string> names;  // of communicators; NCCL's copies of them are not promised
  ddp_nccl_table table{};
};
Opened& opened() {
  static Opened* const one = new Opened;
  return *one;
}
const nccl::Functions& functions() noexcept { return opened().library.functions; }
Comm* as_comm(void* comm) noexcept { return static_cast<Comm*>(comm); }

/// What NCCL calls a dtype, and how many of them make one element; 0: it has none.
struct Elements {
  DataType type;
  size_t each;
};
Elements elements_of(int32_t dtype) noexcept {
  switch (dtype) {
    case DDP_F32: return {nccl::kFloat32, 1};
    case DDP_F64: return {nccl::kFloat64, 1};
    case DDP_F16: return {nccl::kFloat16, 1};
    case DDP_BF16: return {nccl::kBfloat16, 1};
    case DDP_I32: return {nccl::kInt32, 1};
    case DDP_I64: return {nccl::kInt64, 1};
    case DDP_U8: return {nccl::kUint8, 1};
    case DDP_C64: return {nccl::kFloat32, 2};
    case DDP_C128: return {nccl::kFloat64, 2};
    default: return {nccl::kUint8, 0};
  }
}

/// False: no such reduction, or none of this dtype (complex numbers have no order).
bool find_op(int32_t reduce, const Elements& elements, RedOp& out) noexcept {
  if (elements.each == 0) return false;
  switch (reduce) {
    case DDP_GPU_SUM: out = nccl::kSum; return true;
    case DDP_GPU_MIN: out = nccl::kMin; return elements.each == 1;
    case DDP_GPU_MAX: out = nccl::kMax; return elements.each == 1;
    case DDP_GPU_PRODUCT: out = nccl::kProduct; return elements.each == 1;
    default: return false;
  }
}

const char* error_text_of(int32_t result) noexcept { return functions().GetErrorString(result); }

int32_t error_kind_of(int32_t result) noexcept {
  switch (result) {
    case nccl::kSuccess: return DDP_NCCL_OK;
    case nccl::kInProgress: return DDP_NCCL_IN_PROGRESS;
    case nccl::kInvalidArgument: return DDP_NCCL_BAD_ARGUMENT;
    case nccl::kRemoteError: return DDP_NCCL_REMOTE;
    default: return DDP_NCCL_FAILED;
  }
}

const char* last_error(void* comm) noexcept {
  const char* const text = functions().GetLastError != nullptr ? functions().GetLastError(as_comm(comm)) : nullptr;
  return text != nullptr ? text : "";
}

int32_t get_unique_id(void* id) noexcept { return functions().GetUniqueId(static_cast<nccl::UniqueId*>(id)); }

int32_t comm_init(void** out, int32_t size, const void* id, int32_t rank, const char* name, int32_t max_ctas) noexcept {
  *out = nullptr;
  nccl::Config config;
  config.blocking = 0;
  if (max_ctas > 0) config.max_ctas = max_ctas;
  if (name != nullptr && opened().library.version >= nccl::kWithCommName) {
    const std::lock_guard lock(opened().mutex);
    config.comm_name = opened().names.emplace(name).first->c_str();
  }
  return functions().CommInitRankConfig(reinterpret_cast<Comm**>(out), size, *static_cast<const nccl::UniqueId*>(id), rank,
                                        &config);
}

int32_t comm_abort(void* comm) noexcept { return functions().CommAbort(as_comm(comm)); }
int32_t comm_finalize(void* comm) noexcept { return functions().CommFinalize(as_comm(comm)); }
int32_t comm_destroy(void* comm) noexcept { return functions().CommDestroy(as_comm(comm)); }

int32_t comm_async_error(void* comm, int32_t* out) noexcept {
  *out = nccl::kSuccess;
  return functions().CommGetAsyncError(as_comm(comm), out);
}

int32_t all_reduce(const void* send, void* receive, int64_t count, int32_t dtype, int32_t reduce, void* comm,
                   void* stream) noexcept {
  const Elements elements = elements_of(dtype);
  RedOp op = nccl::kSum;
  if (!find_op(reduce, elements, op)) return nccl::kInvalidArgument;
  return functions().AllReduce(send, receive, static_cast<size_t>(count) * elements.each, elements.type, op, as_comm(comm),
                               stream);
}

int32_t reduce_scatter(const void* send, void* receive, int64_t count, int32_t dtype, int32_t reduce, void* comm,
                       void* stream) noexcept {
  const Elements elements = elements_of(dtype);
  RedOp op = nccl::kSum;
  if (!find_op(reduce, elements, op)) return nccl::kInvalidArgument;
  return functions().ReduceScatter(send, receive, static_cast<size_t>(count) * elements.each, elements.type, op,
                                   as_comm(comm), stream);
}

int32_t all_gather(const void* send, void* receive, int64_t count, int32_t dtype, void* comm, void* stream) noexcept {
  const Elements elements = elements_of(dtype);
  if (elements.each == 0) return nccl::kInvalidArgument;
  return functions().AllGather(send, receive, static_cast<size_t>(count) * elements.each, elements.type, as_comm(comm),
                               stream);
}

int32_t broadcast(const void* send, void* receive, int64_t count, int32_t dtype, int32_t root, void* comm,
                  void* stream) noexcept {
  const Elements elements = elements_of(dtype);
  if (elements.each == 0) return nccl::kInvalidArgument;
  return functions().Broadcast(send, receive, static_cast<size_t>(count) * elements.each, elements.type, root, as_comm(comm),
                               stream);
}

int32_t send(const void* data, int64_t count, int32_t dtype, int32_t peer, void* comm, void* stream) noexcept {
  const Elements elements = elements_of(dtype);
  if (elements.each == 0) return nccl::kInvalidArgument;
  return functions().Send(data, static_cast<size_t>(count) * elements.each, elements.type, peer, as_comm(comm), stream);
}

int32_t receive(void* data, int64_t count, int32_t dtype, int32_t peer, void* comm, void* stream) noexcept {
  const Elements elements = elements_of(dtype);
  if (elements.each == 0) return nccl::kInvalidArgument;
  return functions().Recv(data, static_cast<size_t>(count) * elements.each, elements.type, peer, as_comm(comm), stream);
}

int32_t group_start() noexcept { return functions().GroupStart(); }
int32_t group_end() noexcept { return functions().GroupEnd(); }

int32_t mem_alloc(void** out, int64_t bytes) noexcept {
  *out = nullptr;
  if (functions().MemAlloc != nullptr) return functions().MemAlloc(out, static_cast<size_t>(bytes));
  return settled(cudaMalloc(out, static_cast<size_t>(bytes))) == 0 ? nccl::kSuccess : nccl::kUnhandledCudaError;
}

int32_t mem_free(void* memory) noexcept {
  if (functions().MemFree != nullptr) return functions().MemFree(memory);
  return settled(cudaFree(memory)) == 0 ? nccl::kSuccess : nccl::kUnhandledCudaError;
}

int32_t comm_register(void* comm, void* memory, int64_t bytes, void** out_handle) noexcept {
  *out_handle = nullptr;
  if (functions().CommRegister == nullptr) return nccl::kSuccess;
  return functions().CommRegister(as_comm(comm), memory, static_cast<size_t>(bytes), out_handle);
}

int32_t comm_deregister(void* comm, void* handle) noexcept {
  if (functions().CommDeregister == nullptr || handle == nullptr) return nccl::kSuccess;
  return functions().CommDeregister(as_comm(comm), handle);
}

int32_t comm_count(void* comm, int32_t* out) noexcept { return functions().CommCount(as_comm(comm), out); }
int32_t comm_user_rank(void* comm, int32_t* out) noexcept { return functions().CommUserRank(as_comm(comm), out); }
int32_t comm_device(void* comm, int32_t* out) noexcept { return functions().CommCuDevice(as_comm(comm), out); }

ddp_nccl_table make_table(const nccl::Library& library) noexcept {
  ddp_nccl_table table{};
  table.struct_size = sizeof table;
  table.library_version = library.version;
  table.path = library.path.c_str();
  table.error_text = error_text_of;
  table.error_kind = error_kind_of;
  table.last_error = last_error;
  table.get_unique_id = get_unique_id;
  table.comm_init = comm_init;
  table.comm_abort = comm_abort;
  table.comm_finalize = comm_finalize;
  table.comm_destroy = comm_destroy;
  table.comm_async_error = comm_async_error;
  table.all_reduce = all_reduce;
  table.reduce_scatter = reduce_scatter;
  table.all_gather = all_gather;
  table.broadcast = broadcast;
  table.group_start = group_start;
  table.group_end = group_end;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.comm_register = comm_register;
  table.comm_deregister = comm_deregister;
  table.comm_count = comm_count;
  table.comm_user_rank = comm_user_rank;
  table.comm_device = comm_device;
  table.send = send;
  table.receive = receive;
  return table;
}

/// An empty text, or what is wrong.
std::string open_once(const char* path) {
  Opened& one = opened();
  const std::lock_guard lock(one.mutex);
  const std::string asked = path != nullptr ? path : "";
  if (one.open && (asked.empty() || asked == one.asked || asked == one.library.path)) return {};
  if (one.open)
    return "NCCL is already open from " + one.library.path + "; a process uses one copy, so " + asked +
           " cannot be opened as well";
  if (std::string error = nccl::open_library(path, one.library); !error.empty()) return error;
  one.asked = asked;
  one.table = make_table(one.library);
  one.open = true;
  return {};
}

/// As open_once, of what is loaded.
std::string find_once() {
  Opened& one = opened();
  const std::lock_guard lock(one.mutex);
  nccl::Library found;
  std::string error = nccl::find_library(found);
  if (one.open && (!error.empty() || found.path == one.library.path)) return {};  // the only one, under whatever name
  if (one.open)
    return "libddp has opened NCCL from " + one.library.path + ", but this process also has " + found.path +
           ", whose communicators it cannot use; let DDP_NCCL_LIBRARY name that file, or nothing";
  if (!error.empty()) return error;
  one.library = std::move(found);
  one.table = make_table(one.library);
  one.open = true;
  return {};
}

template <class Open>
int32_t give_table(const ddp_nccl_table** out, char* error, int64_t capacity, Open&& open) noexcept {
  *out = nullptr;
  try {
    const std::string problem = open();
    if (problem.empty()) *out = &opened().table;
    if (capacity > 0) std::snprintf(error, static_cast<size_t>(capacity), "%s", problem.c_str());
  } catch (const std::exception& thrown) {
    if (capacity > 0) std::snprintf(error, static_cast<size_t>(capacity), "NCCL cannot be opened: %s", thrown.what());
  }
  return *out != nullptr ? 0 : 1;
}

}  // namespace

int32_t open_nccl(const char* path, const ddp_nccl_table** out, char* error, int64_t capacity) noexcept {
  return give_table(out, error, capacity, [path] { return open_once(path); });
}

int32_t find_nccl(const ddp_nccl_table** out, char* error, int64_t capacity) noexcept {
  return give_table(out, error, capacity, find_once);
}

}  // namespace ddp::cuda
