// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's interface that libddp calls, declared here so that the module builds without nccl.h and runs with any
// NCCL from kOldest on. nccl_header_check.cpp compares it with the real header if there is one.
//
// The config struct is NCCL 2.28's. It has its own size as a field: an older library reads the fields that it knows, a newer
// one fills in missing fields. Results and types are plain numbers, for a newer library may have more of them. Tested by
// unit/cuda/nccl_test.cpp.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace ddp::cuda::nccl {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kUnhandledCudaError = 1;
inline constexpr Result kSystemError = 2;
inline constexpr Result kInternalError = 3;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

enum DataType : int { kInt32 = 2, kUint8 = 1, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum RedOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };

inline constexpr int kOldest = 21403;  // ncclCommInitRankConfig
inline constexpr int kWithCommName = 22700;

struct Comm;  // ncclComm
struct UniqueId {
  char internal[128];
};

struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = INT_MIN;  // INT_MIN, NULL: not set
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int n_channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

/// The functions, by their names without "nccl". What may be absent is NULL then.
struct Functions {
  Result (*GetVersion)(int* version);
  const char* (*GetErrorString)(Result result);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRankConfig)(Comm** comm, int size, UniqueId id, int rank, Config* config);
  Result (*CommAbort)(Comm* comm);
  Result (*CommFinalize)(Comm* comm);
  Result (*CommDestroy)(Comm* comm);
  Result (*CommGetAsyncError)(Comm* comm, Result* async_error);
  Result (*AllReduce)(const void* send, void* receive, size_t count, DataType type, RedOp op, Comm* comm, void* stream);
  Result (*ReduceScatter)(const void* send, void* receive, size_t count, DataType type, RedOp op, Comm* comm, void* stream);
  Result (*AllGather)(const void* send, void* receive, size_t count, DataType type, Comm* comm, void* stream);
  Result (*Broadcast)(const void* send, void* receive, size_t count, DataType type, int root, Comm* comm, void* stream);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*CommCount)(const Comm* comm, int* size);
  Result (*CommUserRank)(const Comm* comm, int* rank);
  Result (*CommCuDevice)(const Comm* comm, int* device);
  Result (*Send)(const void* data, size_t count, DataType type, int peer, Comm* comm, void* stream);
  Result (*Recv)(void* data, size_t count, DataType type, int peer, Comm* comm, void* stream);
  // From here on optional.
  const char* (*GetLastError)(Comm* comm);
  Result (*MemAlloc)(void** out, size_t bytes);  // 2.19
  Result (*MemFree)(void* memory);
  Result (*CommRegister)(const Comm* comm, void* memory, size_t bytes, void** handle);
  Result (*CommDeregister)(const Comm* comm, void* handle);
};

}  // namespace ddp::cuda::nccl
