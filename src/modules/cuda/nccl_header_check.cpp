// SPDX-License-Identifier: Apache-2.0
// Compares nccl_api.hpp with the real header, at compile time, where there is one. Makes no code.
#include "modules/cuda/nccl_api.hpp"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

namespace ddp::cuda::nccl {

static_assert(kSuccess == ncclSuccess && kUnhandledCudaError == ncclUnhandledCudaError && kSystemError == ncclSystemError);
static_assert(kInternalError == ncclInternalError && kInvalidArgument == ncclInvalidArgument &&
              kInvalidUsage == ncclInvalidUsage);
consteval bool same(int ours, int theirs) { return ours == theirs; }
static_assert(same(kInt32, ncclInt32) && same(kUint8, ncclUint8) && same(kInt64, ncclInt64) && same(kFloat16, ncclFloat16));
static_assert(same(kFloat32, ncclFloat32) && same(kFloat64, ncclFloat64) && same(kBfloat16, 9));
static_assert(same(kSum, ncclSum) && same(kMax, ncclMax) && same(kMin, ncclMin));
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && std::is_trivially_copyable_v<UniqueId>);
static_assert(sizeof(ncclResult_t) == sizeof(Result) && sizeof(ncclDataType_t) == sizeof(DataType) &&
              sizeof(ncclRedOp_t) == sizeof(RedOp));

/// As many parameters, each of the same size and kind as in a call through our declaration.
template <class Theirs, class Ours>
struct SameCall : std::false_type {};
template <class R, class... Theirs, class S, class... Ours>
struct SameCall<R(Theirs...), S (*)(Ours...)> {
  template <class A, class B>
  static constexpr bool kAlike =
      sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> == std::is_class_v<B>;
  static constexpr bool same() {
    if constexpr (sizeof...(Theirs) != sizeof...(Ours))
      return false;
    else
      return (kAlike<Theirs, Ours> && ...) && kAlike<R, S>;
  }
  static constexpr bool value = same();
};
#define DDP_SAME_CALL(name) static_assert(SameCall<decltype(nccl##name), decltype(Functions::name)>::value)
DDP_SAME_CALL(GetVersion);
DDP_SAME_CALL(GetErrorString);
DDP_SAME_CALL(GetUniqueId);
DDP_SAME_CALL(CommAbort);
DDP_SAME_CALL(CommDestroy);
DDP_SAME_CALL(CommGetAsyncError);
DDP_SAME_CALL(AllReduce);
DDP_SAME_CALL(ReduceScatter);
DDP_SAME_CALL(AllGather);
DDP_SAME_CALL(Broadcast);
DDP_SAME_CALL(GroupStart);
DDP_SAME_CALL(GroupEnd);
DDP_SAME_CALL(CommCount);
DDP_SAME_CALL(CommUserRank);
DDP_SAME_CALL(CommCuDevice);
DDP_SAME_CALL(Send);
DDP_SAME_CALL(Recv);
#if NCCL_VERSION_CODE >= 21903
DDP_SAME_CALL(CommInitRankConfig);
DDP_SAME_CALL(CommFinalize);
DDP_SAME_CALL(GetLastError);
DDP_SAME_CALL(MemAlloc);
DDP_SAME_CALL(MemFree);
DDP_SAME_CALL(CommRegister);
DDP_SAME_CALL(CommDeregister);
static_assert(kRemoteError == ncclRemoteError && kInProgress == ncclInProgress);
#endif
#undef DDP_SAME_CALL

// Fields are only ever appended, so those of the header must have the offsets of ours.
#define DDP_SAME_PLACE(ours, theirs) static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs))
#if NCCL_VERSION_CODE >= 21903
DDP_SAME_PLACE(magic, magic);
DDP_SAME_PLACE(version, version);
DDP_SAME_PLACE(blocking, blocking);
DDP_SAME_PLACE(max_ctas, maxCTAs);
DDP_SAME_PLACE(net_name, netName);
DDP_SAME_PLACE(split_share, splitShare);
#endif
#if NCCL_VERSION_CODE >= 22703
DDP_SAME_PLACE(traffic_class, trafficClass);
DDP_SAME_PLACE(comm_name, commName);
DDP_SAME_PLACE(nvls_ctas, nvlsCTAs);
#endif
#if NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
DDP_SAME_PLACE(nvlink_centric_sched, nvlinkCentricSched);
static_assert(sizeof(Config) == sizeof(ncclConfig_t));
#endif
#undef DDP_SAME_PLACE

}  // namespace ddp::cuda::nccl
#endif
