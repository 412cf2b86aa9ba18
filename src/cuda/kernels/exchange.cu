// Swaps the bytes of arrays, many pairs in one launch.
// Tested by unit/cuda/tiles_test.cpp (the cutting).
#include "cuda/kernels/spans.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTile = 32 * 1024;  // bytes

struct Nothing {};

struct Swap {
  uint8_t* a;
  uint8_t* b;
  template <uint32_t width>
  struct Loaded {
    Pack<uint8_t, width> a, b;
  };
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return {load_pack<uint8_t, width>(a, at), load_pack<uint8_t, width>(b, at)};
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& loaded) const {
    store_pack<uint8_t, width>(a, at, loaded.b);
    store_pack<uint8_t, width>(b, at, loaded.a);
  }
};

/// True when the tile was done `width` bytes at a time.
template <uint32_t width>
__device__ __forceinline__ bool swap_tile(const Swap& swap, uint32_t count) {
  const Lane lanes[] = {{swap.a, 1}, {swap.b, 1}};
  const Split cut = split(count, width, lanes);
  if (cut.vectors == 0 && width > 1) return false;
  each_element<width, 2>(cut, count, swap);
  return true;
}

template <class Parameters>
__global__ void __launch_bounds__(kThreads) exchange_kernel(const __grid_constant__ Parameters p) {
  each_tile<kTile>(p.table, [&](const SpanPiece& piece, uint32_t first, uint32_t count) {
    const Swap swap{static_cast<uint8_t*>(piece.from) + first, static_cast<uint8_t*>(piece.to) + first};
    if (swap_tile<16>(swap, count) || swap_tile<4>(swap, count)) return;
    swap_tile<1>(swap, count);
  });
}

}  // namespace

KernelList exchange_kernels() noexcept {
  static const void* const kernels[] = {address_of(exchange_kernel<FewSpans<Nothing>>),
                                        address_of(exchange_kernel<ManySpans<Nothing>>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t exchange(const ddp_gpu_span* spans, int64_t count, void* stream) noexcept {
  return launch_spans<Nothing>(exchange_kernel<FewSpans<Nothing>>, exchange_kernel<ManySpans<Nothing>>, Nothing{}, spans,
                               count, kTile, 1, 1, stream);
}

}  // namespace ddp::cuda
