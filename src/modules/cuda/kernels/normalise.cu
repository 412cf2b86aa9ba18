// SPDX-License-Identifier: Apache-2.0
// Batch normalisation: the factors of each channel, and the elementwise passes that use them.
// Tested by unit/cuda/batch_norm_test.cpp (the arithmetic).
#include "modules/cuda/kernels/batch_norm.hpp"
#include "modules/cuda/kernels/launch.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTile = 8192;

struct JoinParameters {
  ddp_gpu_bn_join join;
  ddp_gpu_stop stop;
};
__global__ void __launch_bounds__(kThreads) join_kernel(const __grid_constant__ JoinParameters p) {
  if (halted(p.stop)) return;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c < p.join.channels) join_channel(p.join, c);
}

struct SlopeParameters {
  ddp_gpu_bn_slopes slopes;
  ddp_gpu_stop stop;
};
__global__ void __launch_bounds__(kThreads) slopes_kernel(const __grid_constant__ SlopeParameters p) {
  if (halted(p.stop)) return;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c < p.slopes.channels) slope_channel(p.slopes, c);
}

struct ApplyParameters {
  int64_t count, channels, inner;
  const void* x;
  const void* dy;  // backward
  const double* coefficients;
  void* out;
  ddp_gpu_stop stop;
};

/// The numbers of one channel: mean, factor, and one or two more.
template <int numbers>
struct Coefficients {
  double number[numbers];
  __device__ __forceinline__ Coefficients(const double* all, int64_t channel, int64_t channels) {
#pragma unroll
    for (int k = 0; k < numbers; ++k) number[k] = __ldg(all + channel + k * channels);
  }
};

/// A vector that begins at `element`: compute(k, coefficients) for each of its elements. Mostly it is in one channel.
template <int numbers, class E, uint32_t width, class Compute>
__device__ __forceinline__ void store_computed(E* to, const double* all, int64_t element, int64_t channels, int64_t inner,
                                               Compute compute) {
  Place place = place_of(element, channels, inner);
  Pack<E, width> out;
  if (place.inside + width <= inner) {
    const Coefficients<numbers> one(all, place.channel, channels);
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) out.element[k] = compute(k, one);
    store_pack<E, width>(to, 0, out);
    return;
  }
#pragma unroll
  for (uint32_t k = 0; k < width; ++k, place.next(channels, inner))
    out.element[k] = compute(k, Coefficients<numbers>(all, place.channel, channels));
  store_pack<E, width>(to, 0, out);
}

/// y = (x - mean) * factor + shift.
template <class E>
struct Forward {
  const E* x;
  E* y;
  int64_t first, channels, inner;
  const double* coefficients;
  template <uint32_t width>
  using Loaded = Pack<E, width>;
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return load_pack<E, width>(x, at);
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& loaded) const {
    store_computed<3, E, width>(
        y + at, coefficients, first + at, channels, inner, [&](uint32_t k, const Coefficients<3>& c) {
          return Narrow<E>::of((static_cast<double>(widened(loaded.element[k])) - c.number[0]) * c.number[1] + c.number[2]);
        });
  }
};

/// dx = dy * factor - (x - mean) * slope - shift.
template <class E>
struct Backward {
  const E* x;
  const E* dy;
  E* dx;
  int64_t first, channels, inner;
  const double* coefficients;
  template <uint32_t width>
  struct Loaded {
    Pack<E, width> x, dy;
  };
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return {load_pack<E, width>(x, at), load_pack<E, width>(dy, at)};
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& loaded) const {
    store_computed<4, E, width>(
        dx + at, coefficients, first + at, channels, inner, [&](uint32_t k, const Coefficients<4>& c) {
          const double g = static_cast<double>(widened(loaded.dy.element[k])) * c.number[1];
          const double away = (static_cast<double>(widened(loaded.x.element[k])) - c.number[0]) * c.number[2];
          return Narrow<E>::of(g - away - c.number[3]);
        });
  }
};

/// work(first, count) for the tiles of this block.
template <class Work>
__device__ __forceinline__ void each_flat_tile(int64_t count, Work work) {
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kTile; first < count;
       first += static_cast<int64_t>(gridDim.x) * kTile)
    work(first, static_cast<uint32_t>(min(static_cast<int64_t>(kTile), count - first)));
}

template <class E>
__global__ void __launch_bounds__(kThreads) apply_kernel(const __grid_constant__ ApplyParameters p) {
  constexpr uint32_t kWidth = 16 / sizeof(E);
  if (halted(p.stop)) return;
  each_flat_tile(p.count, [&](int64_t first, uint32_t count) {
    const Forward<E> work{
        static_cast<const E*>(p.x) + first, static_cast<E*>(p.out) + first, first, p.channels, p.inner, p.coefficients};
    const Lane lanes[] = {{work.y, sizeof(E)}, {work.x, sizeof(E)}};
    each_element<kWidth, 1>(split(count, kWidth, lanes), count, work);
  });
}

template <class E>
__global__ void __launch_bounds__(kThreads) apply_backward_kernel(const __grid_constant__ ApplyParameters p) {
  constexpr uint32_t kWidth = 16 / sizeof(E);
  if (halted(p.stop)) return;
  each_flat_tile(p.count, [&](int64_t first, uint32_t count) {
    const Backward<E> work{static_cast<const E*>(p.x) + first,
                           static_cast<const E*>(p.dy) + first,
                           static_cast<E*>(p.out) + first,
                           first,
                           p.channels,
                           p.inner,
                           p.coefficients};
    const Lane lanes[] = {{work.dx, sizeof(E)}, {work.x, sizeof(E)}, {work.dy, sizeof(E)}};
    each_element<kWidth, 1>(split(count, kWidth, lanes), count, work);
  });
}

int32_t run(void (*kernel)(ApplyParameters), const ApplyParameters& p, void* stream) noexcept {
  if (p.count == 0) return 0;
  const int64_t tiles = (p.count + kTile - 1) / kTile;
  uint32_t blocks = 0;
  if (const int32_t code = grid_for(static_cast<uint32_t>(std::min(tiles, int64_t{1} << 30)), blocks); code != 0)
    return code;
  return launch(kernel, p, dim3(blocks), dim3(kThreads), stream);
}

dim3 blocks_of_channels(int64_t channels) noexcept {
  return dim3(static_cast<uint32_t>((channels + kThreads - 1) / kThreads));
}

int64_t values_of(const ddp_gpu_batch& batch) noexcept { return batch.rows * batch.channels * batch.inner; }

}  // namespace

KernelList normalise_kernels() noexcept {
  static const void* const kernels[] = {address_of(join_kernel),
                                        address_of(slopes_kernel),
                                        address_of(apply_kernel<float>),
                                        address_of(apply_kernel<double>),
                                        address_of(apply_kernel<Half>),
                                        address_of(apply_kernel<Bfloat>),
                                        address_of(apply_backward_kernel<float>),
                                        address_of(apply_backward_kernel<double>),
                                        address_of(apply_backward_kernel<Half>),
                                        address_of(apply_backward_kernel<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t bn_join(const ddp_gpu_bn_join* join, ddp_gpu_stop stop, void* stream) noexcept {
  if (join->channels == 0) return 0;
  return launch(join_kernel, JoinParameters{*join, stop}, blocks_of_channels(join->channels), dim3(kThreads), stream);
}

int32_t bn_slopes(const ddp_gpu_bn_slopes* slopes, ddp_gpu_stop stop, void* stream) noexcept {
  if (slopes->channels == 0) return 0;
  return launch(slopes_kernel, SlopeParameters{*slopes, stop}, blocks_of_channels(slopes->channels), dim3(kThreads), stream);
}

int32_t bn_apply(const ddp_gpu_batch* batch, const void* x, const double* coefficients, void* y, ddp_gpu_stop stop,
                 void* stream) noexcept {
  return with_element(batch->dtype, [&](auto element) {
    const ApplyParameters p{values_of(*batch), batch->channels, batch->inner, x, nullptr, coefficients, y, stop};
    return run(apply_kernel<decltype(element)>, p, stream);
  });
}

int32_t bn_apply_backward(const ddp_gpu_batch* batch, const void* dy, const void* x, const double* coefficients, void* dx,
                          ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(batch->dtype, [&](auto element) {
    const ApplyParameters p{values_of(*batch), batch->channels, batch->inner, x, dy, coefficients, dx, stop};
    return run(apply_backward_kernel<decltype(element)>, p, stream);
  });
}

}  // namespace ddp::cuda
