// SPDX-License-Identifier: Apache-2.0
// Adds the slices of all ranks in the order of the CPU's sums, in registers: each slice is read once, the result written
// once.
// Tested by unit/cuda/tree_sum_test.cpp and gpu/kernels_test.cpp.
#include "modules/cuda/kernels/joins.hpp"
#include "modules/cuda/kernels/launch.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTileBytes = 8 * 1024;  // of one slice

template <class E>
constexpr uint32_t kTile = kTileBytes / sizeof(E);
/// 16 bytes of the sum's type, because the rows of a block are in registers together.
template <class E>
constexpr uint32_t kWidth = sizeof(Sum<E>) == 8 ? 2 : 4;

/// The sum of the weights, in the same tree.
__device__ __forceinline__ double sum_of_weights(const ddp_gpu_tree& tree) {
  const auto load = [&](int32_t first, Row<double, 1>(&rows)[kBlock]) {
    for (int k = 0; k < kBlock; ++k) rows[k].element[0] = first + k < tree.ranks ? tree.weights[first + k] : 0.0;
  };
  return sum_rows<double, 1, true>(tree.ranks, load, Add{}).element[0];
}

/// Elements of all slices, `width` at a time.
template <class E, class Join, bool many>
struct Adding {
  const ddp_gpu_tree& tree;
  int64_t first;  // element of the tile
  bool divides;
  double divisor;

  template <uint32_t width>
  using Loaded = Pack<E, width>;

  __device__ __forceinline__ const E* slice_of(int32_t rank) const {
    const void* const from = rank == tree.rank ? tree.own : tree.parts;
    return static_cast<const E*>(from) + (rank == tree.rank ? 0 : rank * tree.stride) + first;
  }
  /// All loads before the first sum.
  template <uint32_t width>
  __device__ __forceinline__ void load_block(int32_t begin, uint32_t element, Row<Sum<E>, width> (&rows)[kBlock]) const {
    Pack<E, width> raw[kBlock];
#pragma unroll
    for (int k = 0; k < kBlock; ++k)
      if (begin + k < tree.ranks) raw[k] = load_pack<E, width>(slice_of(begin + k), element);
#pragma unroll
    for (int k = 0; k < kBlock; ++k) {
      const bool is_there = begin + k < tree.ranks;
      Sum<E> weight = 1;
      if constexpr (!std::is_integral_v<E>)
        if (tree.weights != nullptr && is_there) weight = static_cast<Sum<E>>(tree.weights[begin + k]);
#pragma unroll
      for (uint32_t e = 0; e < width; ++e)
        rows[k].element[e] =
            is_there ? static_cast<Sum<E>>(to_sum(raw[k].element[e]) * weight) : Join::template neutral<Sum<E>>();
    }
  }
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t element) const {
    const auto load_rows = [&](int32_t begin, Row<Sum<E>, width>(&rows)[kBlock]) {
      load_block<width>(begin, element, rows);
    };
    const Row<Sum<E>, width> sum = sum_rows<Sum<E>, width, many>(tree.ranks, load_rows, Join{});
    Loaded<width> out;
#pragma unroll
    for (uint32_t e = 0; e < width; ++e) out.element[e] = from_sum<E>(finished(sum.element[e], divides, divisor));
    return out;
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t element, const Loaded<width>& loaded) const {
    store_pack<E, width>(static_cast<E*>(tree.out) + first, element, loaded);
  }
};

struct TreeParameters {
  ddp_gpu_tree tree;
  ddp_gpu_stop stop;
};

template <class E, class Join, bool many>
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
                          {static_cast<const E*>(tree.out) + first, sizeof(E)},
                          {static_cast<const E*>(tree.parts) + first, sizeof(E)},
                          {static_cast<const E*>(tree.parts) + tree.stride + first, sizeof(E)}};
    each_element<kWidth<E>, 1>(split(count, kWidth<E>, lanes), count, Adding<E, Join, many>{tree, first, divides, divisor});
  }
}

template <class E, class Join>
int32_t run(const TreeParameters& p, void* stream) noexcept {
  const int64_t tiles = (p.tree.count + kTile<E> - 1) / kTile<E>;
  uint32_t blocks = 0;
  if (const int32_t code = grid_for(static_cast<uint32_t>(std::min<int64_t>(tiles, UINT32_MAX)), blocks); code != 0)
    return code;
  auto* const kernel = p.tree.ranks > kBlock ? tree_kernel<E, Join, true> : tree_kernel<E, Join, false>;
  return launch(kernel, p, dim3(blocks), dim3(kThreads), stream);
}

template <class E>
int32_t run_join(const TreeParameters& p, void* stream) noexcept {
  if constexpr (std::is_same_v<E, Half> || std::is_same_v<E, Bfloat>)
    if (p.tree.rounds_nodes != 0) return run<E, AddRounded<E>>(p, stream);
  switch (p.tree.reduce) {
    case DDP_GPU_SUM: return run<E, Add>(p, stream);
    case DDP_GPU_MIN: return run<E, Extremum<false>>(p, stream);
    case DDP_GPU_MAX: return run<E, Extremum<true>>(p, stream);
    default: return kBadArgument;
  }
}

bool is_sound(const ddp_gpu_tree& tree) noexcept {
  const bool small = tree.dtype == DDP_F16 || tree.dtype == DDP_BF16;
  return tree.count >= 0 && tree.ranks >= 1 && tree.ranks <= kMostLeaves && tree.divisor >= 1 &&
         (tree.rounds_nodes == 0 || (small && tree.reduce == DDP_GPU_SUM)) &&
         (tree.by_weight == 0 || tree.weights != nullptr);
}

}  // namespace

#define DDP_TREE(E, Join) address_of(tree_kernel<E, Join, false>), address_of(tree_kernel<E, Join, true>)
#define DDP_TREES(E) DDP_TREE(E, Add), DDP_TREE(E, Extremum<false>), DDP_TREE(E, Extremum<true>)

KernelList tree_kernels() noexcept {
  static const void* const kernels[] = {DDP_TREES(float),
                                        DDP_TREES(double),
                                        DDP_TREES(Half),
                                        DDP_TREES(Bfloat),
                                        DDP_TREES(int32_t),
                                        DDP_TREES(int64_t),
                                        DDP_TREES(uint8_t),
                                        DDP_TREE(Half, AddRounded<Half>),
                                        DDP_TREE(Bfloat, AddRounded<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t tree_sum(const ddp_gpu_tree* tree, ddp_gpu_stop stop, void* stream) noexcept {
  if (!is_sound(*tree)) return kBadArgument;
  if (tree->count == 0) return 0;
  const TreeParameters p{*tree, stop};
  switch (tree->dtype) {
    case DDP_I32: return run_join<int32_t>(p, stream);
    case DDP_I64: return run_join<int64_t>(p, stream);
    case DDP_U8: return run_join<uint8_t>(p, stream);
    default: return with_element(tree->dtype, [&](auto element) { return run_join<decltype(element)>(p, stream); });
  }
}

}  // namespace ddp::cuda
