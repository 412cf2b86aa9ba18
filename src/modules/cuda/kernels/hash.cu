// SPDX-License-Identifier: Apache-2.0
// Hashes of many arrays in two launches.
// Tested by unit/cuda/hash_words_test.cpp (the arithmetic).
#include "modules/cuda/kernels/hash_words.hpp"
#include "modules/cuda/kernels/spans.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTile = 32 * 1024;  // bytes

struct HashPiece {
  const void* from;  // of the whole array
  uint64_t* out;
  uint64_t begin;  // of this part in the array
  uint64_t total;  // bytes of the array
  uint32_t count;  // bytes of this part
  uint32_t first_tile;
};

struct HashParameters {
  Table<HashPiece, capacity<HashPiece>(kLarge, 0)> table;
};
static_assert(sizeof(HashParameters) <= kLarge);

/// Every array's hash becomes that of its length.
__global__ void __launch_bounds__(kThreads) hash_begin_kernel(const __grid_constant__ HashParameters p) {
  for (int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x); i < p.table.count;
       i += static_cast<int32_t>(gridDim.x) * kThreads)
    if (p.table.entries[i].begin == 0) *p.table.entries[i].out = hash_of_length(p.table.entries[i].total);
}

__device__ __forceinline__ uint64_t hash_of_tile(const HashPiece& piece, uint64_t begin, uint64_t end) {
  const auto* const bytes = static_cast<const unsigned char*>(piece.from);
  uint64_t sum = 0;
  if (reinterpret_cast<uintptr_t>(bytes) % 16 == 0) {
    struct alignas(16) Two {
      uint64_t word[2];
    };
    const uint64_t whole = end - (end - begin) % 16;
#pragma unroll 4
    for (uint64_t at = begin + threadIdx.x * 16; at < whole; at += kThreads * 16) {
      const Two two = *reinterpret_cast<const Two*>(bytes + at);
      sum += hash_of_word(two.word[0], at / 8) + hash_of_word(two.word[1], at / 8 + 1);
    }
    begin = whole;
  }
  for (uint64_t at = begin + threadIdx.x * 8; at < end; at += kThreads * 8)
    sum += hash_of_word(word_at(bytes, at, end), at / 8);
  return sum;
}

__global__ void __launch_bounds__(kThreads) hash_kernel(const __grid_constant__ HashParameters p) {
  each_tile<kTile>(p.table, [&](const HashPiece& piece, uint32_t first, uint32_t count) {
    uint64_t sum = hash_of_tile(piece, piece.begin + first, piece.begin + first + count);
#pragma unroll
    for (int width = 16; width > 0; width /= 2) sum += __shfl_down_sync(0xffffffff, sum, width);
    if (threadIdx.x % 32 == 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(piece.out), static_cast<unsigned long long>(sum));
  });
}

int32_t run(const HashParameters& p, void* stream) noexcept {
  if (p.table.count == 0) return 0;
  if (const int32_t code = launch(hash_begin_kernel, p, dim3(4), dim3(kThreads), stream); code != 0) return code;
  return launch_tiles(hash_kernel, p, stream);
}

}  // namespace

KernelList hash_kernels() noexcept {
  static const void* const kernels[] = {address_of(hash_begin_kernel), address_of(hash_kernel)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t hash(const ddp_gpu_span* spans, int64_t count, uint64_t* out, void* stream) noexcept {
  HashParameters p;
  Planner planner(p.table, kTile);
  const auto add = [&](int64_t i, int64_t first, uint32_t length) -> int32_t {
    const int32_t code = planner.full() ? run(p, stream) : 0;
    if (planner.full()) planner.clear();
    planner.add({spans[i].from, out + i, static_cast<uint64_t>(first), static_cast<uint64_t>(spans[i].count), length, 0});
    return code;
  };
  for (int64_t i = 0; i < count; ++i) {
    if (spans[i].count == 0)
      if (const int32_t code = add(i, 0, 0); code != 0) return code;
    int32_t failed = 0;
    each_part(spans[i].count,
              [&](int64_t first, uint32_t length) { failed = failed != 0 ? failed : add(i, first, length); });
    if (failed != 0) return failed;
  }
  return run(p, stream);
}

}  // namespace ddp::cuda
