// SPDX-License-Identifier: Apache-2.0
// Adds the slices of all ranks, or the sums of nodes of the tree, in the order of the CPU's sums, in registers: each slice
// is read once, the result written once.
// Tested by unit/cuda/tree_sum_test.cpp and gpu/kernels_test.cpp.
#include "cuda/kernels/joins.hpp"
#include "cuda/kernels/launch.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTileBytes = 8 * 1024;  // of one slice

template <class E>
constexpr uint32_t kTile = kTileBytes / sizeof(E);
/// 16 bytes of the sum's type, because the rows of a block are in registers together.
template <class E>
constexpr uint32_t kWidth = sizeof(Sum<E>) == 8 ? 2 : 4;

/// The sum of the weights, in the same tree; who is not there weighs nothing.
__device__ __forceinline__ double sum_of_weights(const ddp_gpu_tree& tree) {
  const double* const weights = tree.sum_weights != nullptr ? tree.sum_weights : tree.weights;
  const int32_t* const places = tree.sum_weights != nullptr ? tree.sum_weight_at : tree.rank_at;
  const auto load = [&](int32_t first, Row<double, 1>(&rows)[kBlock]) {
    for (int k = 0; k < kBlock; ++k) {
      const int32_t at = first + k;
      const int32_t place = at >= tree.leaves ? -1 : places == nullptr ? at : places[at];
      rows[k].element[0] = place < 0 ? 0.0 : weights[place];
    }
  };
  return sum_rows<double, 1, true>(tree.leaves, load, Add{}).element[0];
}

/// Elements of all slices, `width` at a time.
template <class E, class Out, class Join, bool many>
struct Adding {
  const ddp_gpu_tree& tree;
  int64_t first;  // element of the tile
  bool divides;
  double divisor;

  template <uint32_t width>
  using Loaded = Pack<Out, width>;

  /// NULL: nobody is there.
  __device__ __forceinline__ const E* slice_at(int32_t at, int32_t& rank) const {
    rank = at >= tree.leaves ? -1 : tree.rank_at == nullptr ? at : tree.rank_at[at];
    if (rank < 0) return nullptr;
    const void* const from = rank == tree.rank ? tree.own : tree.parts;
    return static_cast<const E*>(from) + (rank == tree.rank ? 0 : rank * tree.stride) + first;
  }
  /// All loads before the first sum.
  template <uint32_t width>
  __device__ __forceinline__ void load_block(int32_t at, uint32_t element, Row<Sum<E>, width> (&rows)[kBlock]) const {
    Pack<E, width> raw[kBlock];
    int32_t rank[kBlock];
#pragma unroll
    for (int k = 0; k < kBlock; ++k) {
      const E* const from = slice_at(at + k, rank[k]);
      if (from != nullptr) raw[k] = load_pack<E, width>(from, element);
    }
#pragma unroll
    for (int k = 0; k < kBlock; ++k) {
      Sum<E> weight = 1;
      if constexpr (!std::is_integral_v<E>)
        if (tree.weights != nullptr && rank[k] >= 0) weight = static_cast<Sum<E>>(tree.weights[rank[k]]);
#pragma unroll
      for (uint32_t e = 0; e < width; ++e)
        rows[k].element[e] =
            rank[k] < 0 ? Join::template neutral<Sum<E>>() : static_cast<Sum<E>>(to_sum(raw[k].element[e]) * weight);
    }
  }
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t element) const {
    const auto load_rows = [&](int32_t at, Row<Sum<E>, width>(&rows)[kBlock]) { load_block<width>(at, element, rows); };
    const Row<Sum<E>, width> sum = sum_rows<Sum<E>, width, many>(tree.leaves, load_rows, Join{});
    Loaded<width> out;
#pragma unroll
    for (uint32_t e = 0; e < width; ++e) out.element[e] = from_sum<Out>(finished(sum.element[e], divides, divisor));
    return out;
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t element, const Loaded<width>& loaded) const {
    store_pack<Out, width>(static_cast<Out*>(tree.out) + first, element, loaded);
  }
};

struct TreeParameters {
  ddp_gpu_tree tree;
  ddp_gpu_stop stop;
};

template <class E, class Out, class Join, bool many>
__global__ void __launch_bounds__(kThreads, many ? 1 : 2) tree_kernel(const __grid_constant__ TreeParameters p) {
  if (halted(p.stop)) return;
  const ddp_gpu_tree& tree = p.tree;
  __shared__ double divisor;
  if (threadIdx.x == 0) divisor = tree.by_weight != 0 ? sum_of_weights(tree) : tree.divisor;
  __syncthreads();
  const bool divides = divisor != 1;
  for (int64_t first = int64_t{blockIdx.x} * kTile<E>; first < tree.count; first += int64_t{gridDim.x} * kTile<E>) {
    const auto count = static_cast<uint32_t>(min(static_cast<int64_t>(kTile<E>), tree.count - first));
    const Lane lanes[] = {{static_cast<const E*>(tree.own) + first, sizeof(E)},
                          {static_cast<const Out*>(tree.out) + first, sizeof(Out)},
                          {static_cast<const E*>(tree.parts) + first, sizeof(E)},
                          {static_cast<const E*>(tree.parts) + tree.stride + first, sizeof(E)}};
    each_element<kWidth<E>, 1>(split(count, kWidth<E>, lanes), count,
                               Adding<E, Out, Join, many>{tree, first, divides, divisor});
  }
}

template <class E, class Out, class Join>
int32_t run(const TreeParameters& p, void* stream) noexcept {
  const int64_t tiles = (p.tree.count + kTile<E> - 1) / kTile<E>;
  uint32_t blocks = 0;
  if (const int32_t code = grid_for(static_cast<uint32_t>(std::min<int64_t>(tiles, UINT32_MAX)), blocks); code != 0)
    return code;
  auto* const kernel = p.tree.leaves > kBlock ? tree_kernel<E, Out, Join, true> : tree_kernel<E, Out, Join, false>;
  return launch(kernel, p, dim3(blocks), dim3(kThreads), stream);
}

template <class E>
inline constexpr bool kIsSmall = std::is_same_v<E, Half> || std::is_same_v<E, Bfloat>;

template <class E, class Out>
int32_t run_join(const TreeParameters& p, void* stream) noexcept {
  if constexpr (kIsSmall<E> && kIsSmall<Out>)
    if (p.tree.rounds_nodes != 0) return run<E, Out, AddRounded<E>>(p, stream);
  switch (p.tree.reduce) {
    case DDP_GPU_SUM: return run<E, Out, Add>(p, stream);
    case DDP_GPU_MIN: return run<E, Out, Extremum<false>>(p, stream);
    case DDP_GPU_MAX: return run<E, Out, Extremum<true>>(p, stream);
    default: return kBadArgument;
  }
}

/// A floating type, to itself, or between 16 bits and F32.
template <class E>
int32_t run_to(const TreeParameters& p, void* stream) noexcept {
  if (p.tree.out_dtype == 0 || p.tree.out_dtype == p.tree.dtype) return run_join<E, E>(p, stream);
  if constexpr (kIsSmall<E>)
    if (p.tree.out_dtype == DDP_F32) return run_join<E, float>(p, stream);
  if constexpr (std::is_same_v<E, float>) {
    if (p.tree.out_dtype == DDP_F16) return run_join<E, Half>(p, stream);
    if (p.tree.out_dtype == DDP_BF16) return run_join<E, Bfloat>(p, stream);
  }
  return kBadArgument;
}

bool is_sound(const ddp_gpu_tree& tree) noexcept {
  const bool small = tree.dtype == DDP_F16 || tree.dtype == DDP_BF16;
  return tree.count >= 0 && tree.leaves >= 1 && tree.leaves <= kMostLeaves && tree.divisor >= 1 &&
         (tree.rounds_nodes == 0 || (small && tree.reduce == DDP_GPU_SUM)) &&
         (tree.by_weight == 0 || tree.weights != nullptr || tree.sum_weights != nullptr);
}

}  // namespace

#define DDP_TREE(E, Out, Join) address_of(tree_kernel<E, Out, Join, false>), address_of(tree_kernel<E, Out, Join, true>)
#define DDP_TREES_TO(E, Out) DDP_TREE(E, Out, Add), DDP_TREE(E, Out, Extremum<false>), DDP_TREE(E, Out, Extremum<true>)
#define DDP_TREES(E) DDP_TREES_TO(E, E)

KernelList tree_kernels() noexcept {
  static const void* const kernels[] = {DDP_TREES(float),
                                        DDP_TREES(double),
                                        DDP_TREES(Half),
                                        DDP_TREES(Bfloat),
                                        DDP_TREES(int32_t),
                                        DDP_TREES(int64_t),
                                        DDP_TREES(uint8_t),
                                        DDP_TREES_TO(Half, float),
                                        DDP_TREES_TO(Bfloat, float),
                                        DDP_TREES_TO(float, Half),
                                        DDP_TREES_TO(float, Bfloat),
                                        DDP_TREE(Half, Half, AddRounded<Half>),
                                        DDP_TREE(Bfloat, Bfloat, AddRounded<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t tree_sum(const ddp_gpu_tree* tree, ddp_gpu_stop stop, void* stream) noexcept {
  if (!is_sound(*tree)) return kBadArgument;
  if (tree->count == 0) return 0;
  const TreeParameters p{*tree, stop};
  switch (tree->dtype) {
    case DDP_I32: return run_join<int32_t, int32_t>(p, stream);
    case DDP_I64: return run_join<int64_t, int64_t>(p, stream);
    case DDP_U8: return run_join<uint8_t, uint8_t>(p, stream);
    default: return with_element(tree->dtype, [&](auto element) { return run_to<decltype(element)>(p, stream); });
  }
}

}  // namespace ddp::cuda
