// SPDX-License-Identifier: Apache-2.0
// A sharded step in one kernel, over NVLink's multicast: sums of the ranks' gradients are read from one address, in the own
// slice; the rule works in registers; values are written to one address and come to all ranks. Waits for all ranks before
// and after, each block for the same block of the others, so all blocks must run at the same time: there are few.
//
// NCCL's barrier (ncclLsaBarrierSession) looks at no abort, so its wait is written here once more, with a look at a word of
// the host's: a rank that is gone must not keep the others' GPUs busy for ever.
// The order of a sum is the switch's. BF16 is added in F32 there and rounded once. Elements that are not in groups of four
// are read from each rank and added in the order of the ranks.
// Needs the hardware (from sm_90 on) to be tested; what is shared with other rules: unit/cuda/rules_test.cpp.
#include "cuda/kernels/update.cuh"

#if defined(__CUDACC__)
#include "cuda/nccl_device.hpp"
#if defined(DDP_NCCL_DEVICE)
#define DDP_FUSED 1
#endif
#endif

namespace ddp::cuda {

#if defined(DDP_FUSED)
namespace {

/// Of the host's struct what a kernel needs.
struct Reachable {
  ncclDevComm comm;
  ncclWindow_t grads, values;
  uintptr_t grads_begin, values_begin;
  const uint32_t* live;
  int32_t enters;  // this launch waits for all ranks before it does anything
  int32_t leaves;  // and this one when all is done
};

template <class Scalars, class T, int rule_count, int pieces>
struct FusedParameters {
  static constexpr int kRules = rule_count;
  Step<T> step;
  Reachable reach;
  Scalars rules[rule_count];
  Table<UpdatePiece, pieces> table;
};
template <class Scalars, class T>
using Fused =
    FusedParameters<Scalars, T, 32,
                    capacity<UpdatePiece>(kLarge, sizeof(Step<T>) + sizeof(Reachable) + 32 * sizeof(Scalars) + 32)>;

#if __CUDA_ARCH__ >= 900
constexpr int kSpins = 256;  // between looks at the host's word

/// Block i of all ranks.
class Barrier : public ncclLsaBarrierSession<ncclCoopCta> {
 public:
  using Session = ncclLsaBarrierSession<ncclCoopCta>;
  __device__ __forceinline__ explicit Barrier(const ncclDevComm& comm)
      : Session(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, /*multimem=*/true) {}

  /// False, for all threads of the block: the host says that nobody is to be waited for.
  __device__ __forceinline__ bool meet(const uint32_t* live) {
    this->arrive(ncclCoopCta(), ::cuda::memory_order_acq_rel);
    bool all_here = true;
    if (this->multimem) {
      if (threadIdx.x == 0) all_here = comes_to(this->mcInbox(false), this->epoch + this->team.nRanks, live);
      this->epoch += this->team.nRanks;
    } else {
      for (int i = threadIdx.x; i < this->team.nRanks - 1; i += blockDim.x) {
        const int peer = i + (this->team.rank <= i ? 1 : 0);
        all_here = comes_to(this->ucInbox(this->team.rank, peer), this->epoch + 1, live) && all_here;
      }
      this->epoch += 1;
    }
    return __syncthreads_and(all_here) != 0;
  }

 private:
  static __device__ __forceinline__ bool comes_to(uint32_t* inbox, uint32_t wanted, const uint32_t* live) {
    ::cuda::atomic_ref<uint32_t> arrivals(*inbox);
    for (int spins = 0;; ++spins) {
      if (arrivals.load(::cuda::memory_order_acquire) - wanted <= 0x7fffffffu) return true;
      if (spins % kSpins == kSpins - 1 && *static_cast<const volatile uint32_t*>(live) != 0) return false;
    }
  }
};

__device__ __forceinline__ Pack<float, 4> multicast_sum(const float*, uintptr_t from) {
  float x[4];
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(from)
               : "memory");
  return {{x[0], x[1], x[2], x[3]}};
}
__device__ __forceinline__ Pack<Bfloat, 4> multicast_sum(const Bfloat*, uintptr_t from) {
  uint2 x;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v2.bf16x2 {%0,%1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(from)
               : "memory");
  return bits_as<Pack<Bfloat, 4>>(x);
}
__device__ __forceinline__ void multicast_store(uintptr_t to, const Pack<float, 4>& pack) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};"
               :
               : "l"(to), "f"(pack.element[0]), "f"(pack.element[1]), "f"(pack.element[2]), "f"(pack.element[3])
               : "memory");
}
__device__ __forceinline__ void multicast_store(uintptr_t to, const Pack<Bfloat, 4>& pack) {
  asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;" : : "l"(to), "l"(bits_as<uint64_t>(pack)) : "memory");
}

/// Gradients come from all ranks and values go to all.
template <class E>
struct AllRanks {
  const Reachable& reach;
  uintptr_t grads, values;  // from this rank's address to that of all

  __device__ __forceinline__ explicit AllRanks(const Reachable& of)
      : reach(of),
        grads(reinterpret_cast<uintptr_t>(ncclGetLsaMultimemPointer(of.grads, 0, of.comm)) - of.grads_begin),
        values(reinterpret_cast<uintptr_t>(ncclGetLsaMultimemPointer(of.values, 0, of.comm)) - of.values_begin) {}

  template <uint32_t width>
  __device__ __forceinline__ Pack<E, width> load_grad(const E* grad, uint32_t at) const {
    const auto own = reinterpret_cast<uintptr_t>(grad + at);
    if constexpr (width == 4) {
      return multicast_sum(grad, own + grads);
    } else {
      static_assert(width == 1);
      Wide<E> sum{};
      for (int rank = 0; rank < reach.comm.lsaSize; ++rank) {
        const auto* const theirs =
            static_cast<const volatile Access<E, 1>*>(ncclGetLsaPointer(reach.grads, own - reach.grads_begin, rank));
        const Wide<E> term = widened(bits_as<E>(static_cast<Access<E, 1>>(*theirs)));
        sum = rank == 0 ? term : sum + term;
      }
      return {{Narrow<E>::of(sum)}};
    }
  }
  template <uint32_t width>
  __device__ __forceinline__ void store_value(E* value, uint32_t at, const Pack<E, width>& pack) const {
    const auto own = reinterpret_cast<uintptr_t>(value + at);
    if constexpr (width == 4) {
      multicast_store(own + values, pack);
    } else {
      static_assert(width == 1);
      for (int rank = 0; rank < reach.comm.lsaSize; ++rank)
        *static_cast<volatile Access<E, 1>*>(ncclGetLsaPointer(reach.values, own - reach.values_begin, rank)) =
            bits_as<Access<E, 1>>(pack.element[0]);
    }
  }
};
#endif

template <class E, class Rule, class Parameters>
__global__ void __launch_bounds__(kThreads) fused_kernel(const __grid_constant__ Parameters p) {
#if __CUDA_ARCH__ >= 900
  if (halted(p.step.stop)) return;
  Barrier barrier(p.reach.comm);
  if (p.reach.enters != 0 && !barrier.meet(p.reach.live)) return;
  const AllRanks<E> reach(p.reach);
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    update_piece<E>(piece, first, count, p.step.shaping, Rule{p.rules[piece.rule]}, reach);
  });
  if (p.reach.leaves != 0) static_cast<void>(barrier.meet(p.reach.live));
#endif
}

/// As Batches, but the first launch waits for all ranks, the last one too, and there is one also without a piece.
template <class Parameters>
class FusedBatches {
 public:
  FusedBatches(void (*kernel)(Parameters), Parameters& parameters, int32_t blocks, void* stream) noexcept
      : kernel_(kernel), parameters_(parameters), planner_(parameters.table, kUpdateTile), blocks_(blocks), stream_(stream) {
    parameters_.reach.enters = 1;
    parameters_.reach.leaves = 0;
  }
  void add(const UpdatePiece& piece) noexcept {
    if (planner_.full()) flush();
    planner_.add(piece);
  }
  void flush() noexcept {
    if (code_ == 0) code_ = launch(kernel_, parameters_, dim3(static_cast<unsigned>(blocks_)), dim3(kThreads), stream_);
    parameters_.reach.enters = 0;
    planner_.clear();
  }
  [[nodiscard]] int32_t finish() noexcept {
    parameters_.reach.leaves = 1;
    flush();
    return code_;
  }

 private:
  void (*kernel_)(Parameters);
  Parameters& parameters_;
  Planner<decltype(Parameters::table)> planner_;
  int32_t blocks_;
  void* stream_;
  int32_t code_ = 0;
};

template <class E, class Rule, class Scalars>
constexpr auto* fused = fused_kernel<E, Rule, Fused<Scalars, Wide<E>>>;

template <class E, class RuleOf, class Scalars, class Rule>
int32_t launch_fused(const ddp_gpu_update* updates, int64_t count, const Rule* rules, int64_t rule_count,
                     const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) noexcept {
  using Parameters = Fused<Scalars, Wide<E>>;
  static_assert(sizeof(Parameters) <= kLarge);
  const ddp_gpu_multicast& over = *shape.multicast;
  Parameters p;
  p.step = step_of<Wide<E>>(shape, stop);
  p.reach = {static_cast<const Team*>(over.team)->comm,
             static_cast<ncclWindow_t>(over.grads),
             static_cast<ncclWindow_t>(over.values),
             reinterpret_cast<uintptr_t>(over.grads_begin),
             reinterpret_cast<uintptr_t>(over.values_begin),
             over.live,
             0,
             0};
  RuleSlots<Scalars, Parameters::kRules> slots(p.rules);
  FusedBatches batches(fused<E, RuleOf, Scalars>, p, over.blocks, stream);
  return add_updates<Scalars, E>(batches, slots, updates, count, rules, rule_count);
}

/// body(E{}) with the element types that a switch adds.
template <class Body>
int32_t with_multicast_element(int32_t dtype, const ddp_gpu_shape& shape, Body body) {
  if (shape.gate != nullptr || shape.divisor == 0 || shape.multicast->dtype != dtype) return kBadArgument;
  if (dtype == DDP_F32) return body(float{});
  return dtype == DDP_BF16 ? body(Bfloat{}) : kBadArgument;
}

}  // namespace

KernelList fused_kernels() noexcept {
#define DDP_FUSED_KERNELS(E) \
  address_of(fused<E, AdamRule<Wide<E>>, AdamScalars<Wide<E>>>), address_of(fused<E, SgdRule<Wide<E>>, SgdScalars<Wide<E>>>)
  static const void* const kernels[] = {DDP_FUSED_KERNELS(float), DDP_FUSED_KERNELS(Bfloat)};
#undef DDP_FUSED_KERNELS
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t fused_adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count,
                   int32_t dtype, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_multicast_element(dtype, shape, [&](auto element) {
    using E = decltype(element);
    return launch_fused<E, AdamRule<Wide<E>>, AdamScalars<Wide<E>>>(updates, count, rules, rule_count, shape, stop, stream);
  });
}

int32_t fused_sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_sgd_rule* rules, int64_t rule_count,
                  int32_t dtype, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_multicast_element(dtype, shape, [&](auto element) {
    using E = decltype(element);
    return launch_fused<E, SgdRule<Wide<E>>, SgdScalars<Wide<E>>>(updates, count, rules, rule_count, shape, stop, stream);
  });
}

/// Code for an older architecture, which a newer GPU translates, has an empty kernel.
bool has_fused_code() noexcept {
  cudaFuncAttributes attributes{};
  const void* const kernel = fused_kernels().kernels[0];
  return settled(cudaFuncGetAttributes(&attributes, kernel)) == 0 && attributes.ptxVersion >= 90;
}
#else
KernelList fused_kernels() noexcept { return {nullptr, 0}; }

int32_t fused_adam(const ddp_gpu_update*, int64_t, const ddp_gpu_adam_rule*, int64_t, int32_t, const ddp_gpu_shape&,
                   ddp_gpu_stop, void*) noexcept {
  return kBadArgument;
}
int32_t fused_sgd(const ddp_gpu_update*, int64_t, const ddp_gpu_sgd_rule*, int64_t, int32_t, const ddp_gpu_shape&,
                  ddp_gpu_stop, void*) noexcept {
  return kBadArgument;
}
bool has_fused_code() noexcept { return false; }
#endif

}  // namespace ddp::cuda
