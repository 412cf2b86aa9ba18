// SPDX-License-Identifier: Apache-2.0
// What every kernel over a table of pieces does: look at the stop word, take tiles until none is left, move elements several
// at a time.
// Device code.
// Tested by unit/cuda/tiles_test.cpp as far as it is arithmetic; the rest needs a GPU.
#pragma once

#include "device/gpu/gpu_abi.h"
#include "modules/cuda/kernels/tiles.hpp"

namespace ddp::cuda {

inline constexpr int kThreads = 256;

/// Is a word that the host or an earlier kernel sets not 0? One thread of the block looks; every thread of the block must
/// call.
__device__ __forceinline__ bool halted(ddp_gpu_stop stop, const ddp_gpu_gate* gate = nullptr) {
  __shared__ uint32_t seen;
  if (threadIdx.x == 0) {
    uint32_t word = stop != nullptr ? *static_cast<const volatile uint32_t*>(stop) : 0;
    if (gate != nullptr) word |= static_cast<const volatile ddp_gpu_gate*>(gate)->skip;
    seen = word;
  }
  __syncthreads();
  return seen != 0;
}

/// body(piece, first, count) for every tile of this block.
template <uint32_t tile_size, class T, class Body>
__device__ __forceinline__ void each_tile(const T& table, Body body) {
  for (uint32_t tile = blockIdx.x; tile < table.tiles; tile += gridDim.x) {
    const auto& piece = table.entries[piece_of(table.entries, table.count, tile)];
    const uint32_t first = (tile - piece.first_tile) * tile_size;
    body(piece, first, min(tile_size, piece.count - first));
  }
}

/// Calls load<width>(at) and store<width>(at, loaded) for vectors of `width` elements, `depth` loads before the first store,
/// and for single ones with width 1.
template <uint32_t width, int depth, class Work>
__device__ __forceinline__ void each_element(const Split& split, uint32_t count, const Work& work) {
  uint32_t i = threadIdx.x;
  if constexpr (depth > 1) {
    for (; i + (depth - 1) * kThreads < split.vectors; i += depth * kThreads) {
      typename Work::template Loaded<width> loaded[depth];
#pragma unroll
      for (int k = 0; k < depth; ++k) loaded[k] = work.template load<width>(split.head + (i + k * kThreads) * width);
#pragma unroll
      for (int k = 0; k < depth; ++k) work.template store<width>(split.head + (i + k * kThreads) * width, loaded[k]);
    }
  }
  for (; i < split.vectors; i += kThreads) {
    const uint32_t at = split.head + i * width;
    work.template store<width>(at, work.template load<width>(at));
  }
  const uint32_t singles = count - split.vectors * width;
  for (i = threadIdx.x; i < singles; i += kThreads) {
    const uint32_t at = single_at(split, width, i);
    work.template store<1>(at, work.template load<1>(at));
  }
}

/// A type that one access moves, of some bytes.
template <size_t bytes>
struct AccessOf {
  using Type = uint4;
};
template <>
struct AccessOf<8> {
  using Type = uint2;
};
template <>
struct AccessOf<4> {
  using Type = uint32_t;
};
template <>
struct AccessOf<2> {
  using Type = uint16_t;
};
template <>
struct AccessOf<1> {
  using Type = uint8_t;
};
template <class E, uint32_t width>
using Access = typename AccessOf<sizeof(Pack<E, width>)>::Type;

template <class E, uint32_t width>
__device__ __forceinline__ Pack<E, width> load_pack(const E* from, uint32_t at) {
  return bits_as<Pack<E, width>>(*reinterpret_cast<const Access<E, width>*>(from + at));
}
template <class E, uint32_t width>
__device__ __forceinline__ void store_pack(E* to, uint32_t at, const Pack<E, width>& pack) {
  // Stores that stand in branches nvcc 13 does not join again; __stwb is an ordinary store that stays in one piece.
  auto* const place = reinterpret_cast<Access<E, width>*>(to + at);
  if constexpr (sizeof *place >= 8)
    __stwb(place, bits_as<Access<E, width>>(pack));
  else
    *place = bits_as<Access<E, width>>(pack);
}

}  // namespace ddp::cuda
