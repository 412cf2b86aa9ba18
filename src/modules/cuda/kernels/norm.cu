// SPDX-License-Identifier: Apache-2.0
// Norms of many arrays in one launch: the terms of an exact sum, the largest magnitude; and what becomes of a step after
// them.
// Tested by unit/cuda/norm_terms_test.cpp and decide_test.cpp (the arithmetic).
#include "modules/cuda/kernels/decide.hpp"
#include "modules/cuda/kernels/spans.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffff;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kTermsInTile = 4 * kWarps;

struct NormPiece {
  const void* from;
  uint32_t elements;
  uint32_t count;  // of terms
  uint32_t first_tile;
  uint32_t reserved;
};

template <size_t bytes>
struct NormParameters {
  int64_t* words;
  int32_t p;
  Table<NormPiece, capacity<NormPiece>(bytes, 2 * sizeof(int64_t))> table;
};
static_assert(sizeof(NormParameters<kLarge>) <= kLarge);

/// The sum of one term, in lane 0.
template <class E>
__device__ __forceinline__ double sum_of_term(const E* from, uint32_t length, int32_t p) {
  const uint32_t lane = threadIdx.x % 32;
  double sum = 0;
  if (length == kNormBlock) {
#pragma unroll 16
    for (uint32_t i = 0; i < kNormBlock; i += kNormLanes) sum += norm_term(static_cast<double>(widened(from[lane + i])), p);
  } else {
    for (uint32_t i = lane; i < length; i += kNormLanes) sum += norm_term(static_cast<double>(widened(from[i])), p);
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) sum += __shfl_down_sync(kAllLanes, sum, width);
  return sum;
}

template <class E, size_t bytes>
__global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ NormParameters<bytes> p) {
  using Word = unsigned long long;
  __shared__ Word words[kSumWords];
  for (uint32_t i = threadIdx.x; i < kSumWords; i += kThreads) words[i] = 0;
  __syncthreads();
  each_tile<kTermsInTile>(p.table, [&](const NormPiece& piece, uint32_t first, uint32_t count) {
    for (uint32_t k = threadIdx.x / 32; k < count; k += kWarps) {
      const Term term = term_at(piece.elements, first + k);
      const double sum = sum_of_term(static_cast<const E*>(piece.from) + term.first, term.length, p.p);
      if (threadIdx.x % 32 != 0) continue;
      const Digits digits = digits_of(sum);
#pragma unroll
      for (uint32_t d = 0; d < 3; ++d)
        if (digits.digit[d] != 0) atomicAdd(&words[digits.first + d], static_cast<Word>(digits.digit[d]));
    }
  });
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kSumWords; i += kThreads)
    if (words[i] != 0) atomicAdd(reinterpret_cast<Word*>(p.words) + i, words[i]);
}

/// The bits of an element without its sign, as a number that orders magnitudes; NaN is above infinity.
template <class E>
using Order = std::conditional_t<sizeof(E) == 8, unsigned long long, uint32_t>;
__device__ __forceinline__ uint32_t magnitude(Half x) { return x.bits & 0x7fffu; }
__device__ __forceinline__ uint32_t magnitude(Bfloat x) { return x.bits & 0x7fffu; }
__device__ __forceinline__ uint32_t magnitude(float x) { return bits_as<uint32_t>(x) & 0x7fffffffu; }
__device__ __forceinline__ unsigned long long magnitude(double x) {
  return bits_as<unsigned long long>(x) & 0x7fffffffffffffffull;
}

__device__ __forceinline__ Half of_magnitude(Half, uint32_t bits) { return {static_cast<uint16_t>(bits)}; }
__device__ __forceinline__ Bfloat of_magnitude(Bfloat, uint32_t bits) { return {static_cast<uint16_t>(bits)}; }
__device__ __forceinline__ float of_magnitude(float, uint32_t bits) { return bits_as<float>(bits); }
__device__ __forceinline__ double of_magnitude(double, unsigned long long bits) { return bits_as<double>(bits); }

template <class E>
struct Largest {
  const E* from;
  Order<E>* most;
  template <uint32_t width>
  using Loaded = Pack<E, width>;
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return load_pack<E, width>(from, at);
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t, const Loaded<width>& loaded) const {
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) *most = max(*most, magnitude(loaded.element[k]));
  }
};

struct LargestExtra {
  uint64_t* bits;
};

template <class E>
constexpr uint32_t kLargestTile = 32 * 1024 / sizeof(E);

template <class E>
__global__ void __launch_bounds__(kThreads) largest_kernel(const __grid_constant__ ManySpans<LargestExtra> p) {
  constexpr uint32_t kWidth = 16 / sizeof(E);
  Order<E> most = 0;
  each_tile<kLargestTile<E>>(p.table, [&](const SpanPiece& piece, uint32_t first, uint32_t count) {
    const E* const from = static_cast<const E*>(piece.from) + first;
    const Lane lanes[] = {{from, sizeof(E)}};
    each_element<kWidth, 4>(split(count, kWidth, lanes), count, Largest<E>{from, &most});
  });
#pragma unroll
  for (int width = 16; width > 0; width /= 2) most = max(most, __shfl_down_sync(kAllLanes, most, width));
  if (threadIdx.x % 32 != 0 || most == 0) return;
  const auto value = static_cast<double>(widened(of_magnitude(E{}, most)));
  atomicMax(reinterpret_cast<unsigned long long*>(p.extra.bits), bits_as<unsigned long long>(value) & 0x7fffffffffffffffull);
}

struct DecideParameters {
  const int64_t* words;
  double loss_scale, max_norm;
  int32_t skip_nonfinite;
  ddp_gpu_gate* gate;
};

__global__ void decide_kernel(const __grid_constant__ DecideParameters p) {
  *p.gate = decided(p.words, p.loss_scale, p.max_norm, p.skip_nonfinite != 0);
}

template <class E, size_t bytes>
int32_t add_terms(const ddp_gpu_span* spans, int64_t count, int32_t p, int64_t* words, void* stream) noexcept {
  NormParameters<bytes> parameters;
  parameters.words = words;
  parameters.p = p;
  Batches batches(norm_kernel<E, bytes>, parameters, kTermsInTile, stream, BlockFor::kProcessor);
  for (int64_t i = 0; i < count; ++i)
    each_part(spans[i].count, [&](int64_t first, uint32_t length) {
      batches.add(NormPiece{moved(spans[i].from, first * static_cast<int64_t>(sizeof(E))), length, terms_of(length), 0, 0});
    });
  return batches.finish();
}

}  // namespace

KernelList norm_kernels() noexcept {
#define DDP_NORMS(E) address_of(norm_kernel<E, kSmall>), address_of(norm_kernel<E, kLarge>), address_of(largest_kernel<E>)
  static const void* const kernels[] = {DDP_NORMS(float), DDP_NORMS(double), DDP_NORMS(Half), DDP_NORMS(Bfloat),
                                        address_of(decide_kernel)};
#undef DDP_NORMS
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t add_norm_terms(const ddp_gpu_span* spans, int64_t count, int32_t dtype, int32_t p, int64_t* words,
                       void* stream) noexcept {
  if (p != 1 && p != 2) return kBadArgument;
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    constexpr int64_t kFew = decltype(NormParameters<kSmall>::table)::kCapacity;
    return count <= kFew ? add_terms<E, kSmall>(spans, count, p, words, stream)
                         : add_terms<E, kLarge>(spans, count, p, words, stream);
  });
}

int32_t largest(const ddp_gpu_span* spans, int64_t count, int32_t dtype, uint64_t* bits, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_spans_with(largest_kernel<E>, LargestExtra{bits}, spans, count, kLargestTile<E>, sizeof(E), 0, stream,
                             BlockFor::kProcessor);
  });
}

int32_t decide(const int64_t* words, double loss_scale, double max_norm, int32_t skip_nonfinite, ddp_gpu_gate* gate,
               void* stream) noexcept {
  return launch(decide_kernel, DecideParameters{words, loss_scale, max_norm, skip_nonfinite, gate}, dim3(1), dim3(1),
                stream);
}

}  // namespace ddp::cuda
