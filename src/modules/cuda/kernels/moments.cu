// SPDX-License-Identifier: Apache-2.0
// The sums over a batch that batch normalisation needs: moments forward, two sums backward. A block takes a part of a
// channel or of some columns (moments.hpp), then a warp for each channel joins the parts in a fixed order. No atomics, so
// the same input gives the same bits.
// Tested by unit/cuda/moments_test.cpp and batch_norm_test.cpp (the arithmetic).
#include "modules/cuda/kernels/batch_norm.hpp"
#include "modules/cuda/kernels/launch.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kWarps = kThreads / 32;
static_assert(kColumns * kRowLanes == kThreads && kChunk == kThreads * kHeld);

/// The sum of all threads' numbers, in every thread; the order of the additions is fixed.
__device__ double block_sum(double x) {
  __shared__ double warps[kWarps];
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x += __shfl_down_sync(0xffffffff, x, width);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) sum += warps[w];
  __syncthreads();
  return sum;
}

struct SumParameters {
  ddp_gpu_batch batch;
  Division division;
  const void* x;
  const void* dy;         // NULL: moments of x
  ddp_gpu_channels mean;  // with dy
  double* parts;          // sets, or pairs of sums, those of a channel side by side
};

/// Where this block works.
struct Share {
  int64_t column;  // the first
  int64_t split;
};
__device__ __forceinline__ Share share_of(const Division& division) {
  const int64_t block = blockIdx.x;
  return {block / division.splits * (division.by_columns ? kColumns : 1), block % division.splits};
}

/// Walks through one channel of long stretches: the addresses of elements t, t + 256, t + 512, ... of a chunk.
struct Walk {
  int64_t inner, row_length, base;
  int64_t row, inside, row_step, inside_step;
  __device__ __forceinline__ Walk(const ddp_gpu_batch& batch, int64_t channel, int64_t element)
      : inner(batch.inner), row_length(batch.channels * batch.inner), base(channel * batch.inner) {
    const bool small = ((element | inner) >> 32) == 0;
    row = small ? static_cast<uint32_t>(element) / static_cast<uint32_t>(inner) : element / inner;
    inside = element - row * inner;
    row_step = inner <= kThreads ? kThreads / static_cast<uint32_t>(inner) : 0;
    inside_step = kThreads - row_step * inner;
  }
  __device__ __forceinline__ int64_t at() const { return row * row_length + base + inside; }
  __device__ __forceinline__ void next() {
    row += row_step;
    inside += inside_step;
    if (inside < inner) return;
    inside -= inner;
    ++row;
  }
};

template <class E>
__global__ void __launch_bounds__(kThreads, 3) stretch_moments_kernel(const __grid_constant__ SumParameters p) {
  const Share share = share_of(p.division);
  const auto* const x = static_cast<const E*>(p.x);
  const int64_t values = p.batch.rows * p.batch.inner;
  const Part chunks = part_of((values + kChunk - 1) / kChunk, p.division.splits, share.split);
  Set all{0, 0, 0};
  for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const int64_t begin = chunk * kChunk;
    const auto count = static_cast<uint32_t>(min(kChunk, values - begin));
    Walk walk(p.batch, share.column, begin + threadIdx.x);
    E held[kHeld];
    double sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k, walk.next())
      if (threadIdx.x + k * kThreads < count) held[k] = x[walk.at()];
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k)
      if (threadIdx.x + k * kThreads < count) sum += static_cast<double>(widened(held[k]));
    const double mean = block_sum(sum) / static_cast<double>(count);
    double m2 = 0;
#pragma unroll
    for (uint32_t k = 0; k < kHeld; ++k) {
      const double difference = static_cast<double>(widened(held[k])) - mean;
      if (threadIdx.x + k * kThreads < count) m2 += difference * difference;
    }
    all = joined(all, {static_cast<double>(count), mean, block_sum(m2)});
  }
  if (threadIdx.x == 0) reinterpret_cast<Set*>(p.parts)[share.column * p.division.splits + share.split] = all;
}

/// A thread for each column; the threads of a column take its rows in turns.
template <class E>
__global__ void __launch_bounds__(kThreads, 3) column_moments_kernel(const __grid_constant__ SumParameters p) {
  __shared__ Set sets[kRowLanes][kColumns];
  const Share share = share_of(p.division);
  const uint32_t lane = threadIdx.x / kColumns;
  const int64_t column = share.column + threadIdx.x % kColumns;
  const Part rows = part_of(p.batch.rows, p.division.splits, share.split);
  Set all{0, 0, 0};
  if (column < p.division.columns) {
    const auto* const x = static_cast<const E*>(p.x) + column;
    for (int64_t row = rows.begin + lane; row < rows.end; row += kRowLanes * kHeld) {
      E held[kHeld];
      const int64_t left = (rows.end - row + kRowLanes - 1) / kRowLanes;
      const auto count = static_cast<uint32_t>(min(static_cast<int64_t>(kHeld), left));
#pragma unroll
      for (uint32_t k = 0; k < kHeld; ++k)
        if (k < count) held[k] = x[(row + k * kRowLanes) * p.division.columns];
      all = joined(all, set_of(count, [&](uint32_t k) { return static_cast<double>(widened(held[k])); }));
    }
  }
  sets[lane][threadIdx.x % kColumns] = all;
  __syncthreads();
  if (lane != 0 || column >= p.division.columns) return;
  for (uint32_t k = 1; k < kRowLanes; ++k) all = joined(all, sets[k][threadIdx.x]);
  reinterpret_cast<Set*>(p.parts)[column * p.division.splits + share.split] = all;
}

struct Pair {
  double sum;
  double product;
};

template <class E>
__global__ void __launch_bounds__(kThreads) stretch_sums_kernel(const __grid_constant__ SumParameters p) {
  const Share share = share_of(p.division);
  const auto* const x = static_cast<const E*>(p.x);
  const auto* const dy = static_cast<const E*>(p.dy);
  const int64_t values = p.batch.rows * p.batch.inner;
  const double mean = channel_of(p.mean, share.column, 0);
  const Part chunks = part_of((values + kChunk - 1) / kChunk, p.division.splits, share.split);
  Pair all{0, 0};
  Walk walk(p.batch, share.column, chunks.begin * kChunk + threadIdx.x);
  const int64_t end = min(chunks.end * kChunk, values);
#pragma unroll 4
  for (int64_t at = chunks.begin * kChunk + threadIdx.x; at < end; at += kThreads, walk.next()) {
    const auto g = static_cast<double>(widened(dy[walk.at()]));
    all.sum += g;
    all.product += g * (static_cast<double>(widened(x[walk.at()])) - mean);
  }
  all.sum = block_sum(all.sum);
  all.product = block_sum(all.product);
  if (threadIdx.x == 0) reinterpret_cast<Pair*>(p.parts)[share.column * p.division.splits + share.split] = all;
}

template <class E>
__global__ void __launch_bounds__(kThreads) column_sums_kernel(const __grid_constant__ SumParameters p) {
  __shared__ Pair pairs[kRowLanes][kColumns];
  const Share share = share_of(p.division);
  const uint32_t lane = threadIdx.x / kColumns;
  const int64_t column = share.column + threadIdx.x % kColumns;
  const Part rows = part_of(p.batch.rows, p.division.splits, share.split);
  Pair all{0, 0};
  if (column < p.division.columns) {
    const double mean = channel_of(p.mean, column / p.batch.inner, 0);
#pragma unroll 8
    for (int64_t row = rows.begin + lane; row < rows.end; row += kRowLanes) {
      const int64_t at = row * p.division.columns + column;
      const auto g = static_cast<double>(widened(static_cast<const E*>(p.dy)[at]));
      all.sum += g;
      all.product += g * (static_cast<double>(widened(static_cast<const E*>(p.x)[at])) - mean);
    }
  }
  pairs[lane][threadIdx.x % kColumns] = all;
  __syncthreads();
  if (lane != 0 || column >= p.division.columns) return;
  for (uint32_t k = 1; k < kRowLanes; ++k) {
    all.sum += pairs[k][threadIdx.x].sum;
    all.product += pairs[k][threadIdx.x].product;
  }
  reinterpret_cast<Pair*>(p.parts)[column * p.division.splits + share.split] = all;
}

struct FinishParameters {
  const double* parts;
  int64_t channels;
  int64_t sets;  // of a channel
  double* out;
};

/// A warp joins the sets of one channel.
__global__ void __launch_bounds__(kThreads) finish_moments_kernel(const __grid_constant__ FinishParameters p) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (c >= p.channels) return;
  const Set* const sets = reinterpret_cast<const Set*>(p.parts) + c * p.sets;
  Set all{0, 0, 0};
  for (int64_t k = threadIdx.x % 32; k < p.sets; k += 32) all = joined(all, sets[k]);
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    const Set other{__shfl_down_sync(0xffffffff, all.count, width), __shfl_down_sync(0xffffffff, all.mean, width),
                    __shfl_down_sync(0xffffffff, all.m2, width)};
    all = joined(all, other);
  }
  if (threadIdx.x % 32 != 0) return;
  if (c == 0) p.out[0] = all.count;
  p.out[1 + c] = all.mean;
  p.out[1 + p.channels + c] = all.m2;
}

__global__ void __launch_bounds__(kThreads) finish_sums_kernel(const __grid_constant__ FinishParameters p) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (c >= p.channels) return;
  const Pair* const pairs = reinterpret_cast<const Pair*>(p.parts) + c * p.sets;
  Pair all{0, 0};
  for (int64_t k = threadIdx.x % 32; k < p.sets; k += 32) {
    all.sum += pairs[k].sum;
    all.product += pairs[k].product;
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) {
    all.sum += __shfl_down_sync(0xffffffff, all.sum, width);
    all.product += __shfl_down_sync(0xffffffff, all.product, width);
  }
  if (threadIdx.x % 32 != 0) return;
  p.out[c] = all.sum;
  p.out[p.channels + c] = all.product;
}

/// Parts, then their joining.
int32_t run(void (*stretches)(SumParameters), void (*columns)(SumParameters), void (*finish)(FinishParameters),
            const SumParameters& p, double* out, void* stream) noexcept {
  const int64_t channels = p.batch.channels;
  if (channels == 0) return 0;
  const auto blocks = static_cast<uint32_t>(p.division.blocks());
  if (blocks > 0)
    if (const int32_t code = launch(p.division.by_columns ? columns : stretches, p, dim3(blocks), dim3(kThreads), stream);
        code != 0)
      return code;
  const FinishParameters last{p.parts, channels, p.division.sets(channels), out};
  return launch(finish, last, dim3(static_cast<uint32_t>((channels + kWarps - 1) / kWarps)), dim3(kThreads), stream);
}

}  // namespace

KernelList moments_kernels() noexcept {
#define DDP_SUMS(E)                                                                                                \
  address_of(stretch_moments_kernel<E>), address_of(column_moments_kernel<E>), address_of(stretch_sums_kernel<E>), \
      address_of(column_sums_kernel<E>)
  static const void* const kernels[] = {DDP_SUMS(float),
                                        DDP_SUMS(double),
                                        DDP_SUMS(Half),
                                        DDP_SUMS(Bfloat),
                                        address_of(finish_moments_kernel),
                                        address_of(finish_sums_kernel)};
#undef DDP_SUMS
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int64_t bn_scratch_bytes(const ddp_gpu_batch* batch) noexcept {
  return batch->channels * division_of(*batch).sets(batch->channels) * static_cast<int64_t>(sizeof(Set));
}

int32_t bn_moments(const ddp_gpu_batch* batch, const void* x, double* out, void* scratch, void* stream) noexcept {
  return with_element(batch->dtype, [&](auto element) {
    using E = decltype(element);
    const SumParameters p{*batch, division_of(*batch), x, nullptr, {}, static_cast<double*>(scratch)};
    return run(stretch_moments_kernel<E>, column_moments_kernel<E>, finish_moments_kernel, p, out, stream);
  });
}

int32_t bn_sums(const ddp_gpu_batch* batch, const void* dy, const void* x, const ddp_gpu_channels* mean, double* out,
                void* scratch, void* stream) noexcept {
  return with_element(batch->dtype, [&](auto element) {
    using E = decltype(element);
    const SumParameters p{*batch, division_of(*batch), x, dy, *mean, static_cast<double*>(scratch)};
    return run(stretch_sums_kernel<E>, column_sums_kernel<E>, finish_sums_kernel, p, out, stream);
  });
}

}  // namespace ddp::cuda
