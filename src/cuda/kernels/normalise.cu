// Batch normalisation: the factors of each channel, and the elementwise passes that use them.
// Tested by unit/cuda/batch_norm_test.cpp (the arithmetic).
#include "cuda/kernels/batch_norm.hpp"
#include "cuda/kernels/launch.cuh"

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
  __device__ __forceinline__ void store(uint32_t at, Loaded<width> loaded) const {
    Place place = place_of(first + at, channels, inner);
#pragma unroll
    for (uint32_t k = 0; k < width; ++k, place.next(channels, inner)) {
      const double* const c = coefficients + place.channel;
      const double value = (static_cast<double>(widened(loaded.element[k])) - __ldg(c)) * __ldg(c + channels) + __ldg(c + 2 * channels);
      loaded.element[k] = Narrow<E>::of(value);
    }
    store_pack<E, width>(y, at, loaded);
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
  __device__ __forceinline__ void store(uint32_t at, Loaded<width> loaded) const {
    Place place = place_of(first + at, channels, inner);
#pragma unroll
    for (uint32_t k = 0; k < width; ++k, place.next(channels, inner)) {
      const double* const c = coefficients + place.channel;
      const double g = static_cast<double>(widened(loaded.dy.element[k])) * __ldg(c + channels);
      const double away = (static_cast<double>(widened(loaded.x.element[k])) - __ldg(c)) * __ldg(c + 2 * channels);
      loaded.dy.element[k] = Narrow<E>::of(g - away - __ldg(c + 3 * channels));
    }
    store_pack<E, width>(dx, at, loaded.dy);
  }
};

/// work(first, count) for the tiles of this block.
template <class Work>
__device__ __forceinline__ void each_flat_tile(int64_t count, Work work) {
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kTile; first < count; first += static_cast<int64_t>(gridDim.x) * kTile)
    work(first, static_cast<uint32_t>(min(static_cast<int64_t>(kTile), count - first)));
}

template <class E>
__global__ void __launch_bounds__(kThreads) apply_kernel(const __grid_constant__ ApplyParameters p) {
  constexpr uint32_t kWidth = 16 / sizeof(E);
  if (halted(p.stop)) return;
  each_flat_tile(p.count, [&](int64_t first, uint32_t count) {
    const Forward<E> work{static_cast<const E*>(p.x) + first, static_cast<E*>(p.out) + first, first, p.channels, p.inner, p.coefficients};
    const Lane lanes[] = {{work.y, sizeof(E)}, {work.x, sizeof(E)}};
    each_element<kWidth, 1>(split(count, kWidth, lanes), count, work);
  });
}

template <class E>
__global__ void __launch_bounds__(kThreads) apply_backward_kernel(const __grid_constant__ ApplyParameters p) {
  constexpr uint32_t kWidth = 16 / sizeof(E);
  if (halted(p.stop)) return;
  each_flat_tile(p.count, [&](int64_t first, uint32_t count) {
    const Backward<E> work{static_cast<const E*>(p.x) + first, static_cast<const E*>(p.dy) + first, static_cast<E*>(p.out) + first, first,
                           p.channels, p.inner, p.coefficients};
    const Lane lanes[] = {{work.dx, sizeof(E)}, {work.x, sizeof(E)}, {work.dy, sizeof(E)}};
    each_element<kWidth, 1>(split(count, kWidth, lanes), count, work);
  });
}

int32_t run(void (*kernel)(ApplyParameters), const ApplyParameters& p, void* stream) noexcept {
  if (p.count == 0) return 0;
  const int64_t tiles = (p.count + kTile - 1) / kTile;
  uint32_t blocks = 0;
  if (const int32_t code = grid_for(static_cast<uint32_t>(std::min(tiles, int64_t{1} << 30)), blocks); code != 0) return code;
  return launch(kernel, p, dim3(blocks), dim3(kThreads), stream);
}

dim3 blocks_of_channels(int64_t channels) noexcept { return dim3(static_cast<uint32_t>((channels + kThreads - 1) / kThreads)); }

int64_t values_of(const ddp_gpu_batch& batch) noexcept { return batch.rows * batch.channels * batch.inner; }

}  // namespace

KernelList normalise_kernels() noexcept {
  static const void* const kernels[] = {
      address_of(join_kernel),          address_of(slopes_kernel),       address_of(apply_kernel<float>),          address_of(apply_kernel<double>),
      address_of(apply_kernel<Half>),   address_of(apply_kernel<Bfloat>), address_of(apply_backward_kernel<float>), address_of(apply_backward_kernel<double>),
      address_of(apply_backward_kernel<Half>), address_of(apply_backward_kernel<Bfloat>)};
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

int32_t bn_apply(const ddp_gpu_batch* batch, const void* x, const double* coefficients, void* y, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(batch->dtype, [&](auto element) {
    const ApplyParameters p{values_of(*batch), batch->channels, batch->inner, x, nullptr, coefficients, y, stop};
    return run(apply_kernel<decltype(element)>, p, stream);
  });
}

int32_t bn_apply_backward(const ddp_gpu_batch* batch, const void* dy, const void* x, const double* coefficients, void* dx, ddp_gpu_stop stop,
                          void* stream) noexcept {
  return with_element(batch->dtype, [&](auto element) {
    const ApplyParameters p{values_of(*batch), batch->channels, batch->inner, x, dy, coefficients, dx, stop};
    return run(apply_backward_kernel<decltype(element)>, p, stream);
  });
}

}  // namespace ddp::cuda
