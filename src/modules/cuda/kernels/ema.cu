// SPDX-License-Identifier: Apache-2.0
// Running averages of many parameters in one launch.
// Tested by unit/cuda/rules_test.cpp (the formula).
#include "modules/cuda/kernels/rules.hpp"
#include "modules/cuda/kernels/spans.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTile = 4096;

template <class T>
struct Decay {
  T decay, share;
  ddp_gpu_stop stop;
};

template <class E>
struct Average {
  using T = Wide<E>;
  const E* from;
  T* to;
  T decay, share;
  template <uint32_t width>
  struct Loaded {
    Pack<E, width> value;
    Pack<T, width> average;
  };
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return {load_pack<E, width>(from, at), load_pack<T, width>(to, at)};
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, Loaded<width> loaded) const {
#pragma unroll
    for (uint32_t k = 0; k < width; ++k)
      loaded.average.element[k] = averaged(loaded.average.element[k], widened(loaded.value.element[k]), decay, share);
    store_pack<T, width>(to, at, loaded.average);
  }
};

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) ema_kernel(const __grid_constant__ Parameters p) {
  using T = Wide<E>;
  constexpr uint32_t kWidth = 16 / sizeof(T);
  if (halted(p.extra.stop)) return;
  each_tile<kTile>(p.table, [&](const SpanPiece& piece, uint32_t first, uint32_t count) {
    const Average<E> work{static_cast<const E*>(piece.from) + first, static_cast<T*>(piece.to) + first, p.extra.decay,
                          p.extra.share};
    const Lane lanes[] = {{work.to, sizeof(T)}, {work.from, sizeof(E)}};
    each_element<kWidth, 2>(split(count, kWidth, lanes), count, work);
  });
}

template <class E>
constexpr auto* few = ema_kernel<E, FewSpans<Decay<Wide<E>>>>;
template <class E>
constexpr auto* many = ema_kernel<E, ManySpans<Decay<Wide<E>>>>;

}  // namespace

KernelList ema_kernels() noexcept {
  static const void* const kernels[] = {address_of(few<float>),  address_of(few<double>), address_of(few<Half>),
                                        address_of(few<Bfloat>), address_of(many<float>), address_of(many<double>),
                                        address_of(many<Half>),  address_of(many<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t ema(const ddp_gpu_span* spans, int64_t count, int32_t dtype, double decay, ddp_gpu_stop stop,
            void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    using T = Wide<E>;
    const Decay<T> extra{static_cast<T>(decay), static_cast<T>(1.0 - decay), stop};
    return launch_spans<Decay<T>>(few<E>, many<E>, extra, spans, count, kTile, sizeof(E), sizeof(T), stream);
  });
}

}  // namespace ddp::cuda
