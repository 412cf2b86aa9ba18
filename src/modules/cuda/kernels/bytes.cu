// SPDX-License-Identifier: Apache-2.0
// Copies or swaps the bytes of arrays, many pairs in one launch.
// Tested by unit/cuda/numbers_test.cpp and unit/cuda/tiles_test.cpp (the cutting).
#include "modules/cuda/kernels/spans.cuh"

namespace ddp::cuda {
namespace {

constexpr uint32_t kTile = 16 * 1024;  // bytes

struct Stop {
  ddp_gpu_stop stop;
};

struct Copy {
  const uint8_t* from;
  uint8_t* to;
  template <uint32_t width>
  using Loaded = Pack<uint8_t, width>;
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return load_pack<uint8_t, width>(from, at);
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& loaded) const {
    store_pack<uint8_t, width>(to, at, loaded);
  }
};

struct Swap {
  uint8_t* from;
  uint8_t* to;
  template <uint32_t width>
  struct Loaded {
    Pack<uint8_t, width> from, to;
  };
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return {load_pack<uint8_t, width>(from, at), load_pack<uint8_t, width>(to, at)};
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& loaded) const {
    store_pack<uint8_t, width>(from, at, loaded.to);
    store_pack<uint8_t, width>(to, at, loaded.from);
  }
};

/// True when the tile was done `width` bytes at a time.
template <uint32_t width, class Work>
__device__ __forceinline__ bool do_tile(const Work& work, uint32_t count) {
  const Lane lanes[] = {{work.from, 1}, {work.to, 1}};
  const Split cut = split(count, width, lanes);
  if (cut.vectors == 0 && width > 1) return false;
  each_element<width, 2>(cut, count, work);
  return true;
}

template <class Work, class Parameters>
__global__ void __launch_bounds__(kThreads) bytes_kernel(const __grid_constant__ Parameters p) {
  if (halted(p.extra.stop)) return;
  each_tile<kTile>(p.table, [&](const SpanPiece& piece, uint32_t first, uint32_t count) {
    const Work work{static_cast<uint8_t*>(piece.from) + first, static_cast<uint8_t*>(piece.to) + first};
    if (do_tile<16>(work, count) || do_tile<4>(work, count)) return;
    do_tile<1>(work, count);
  });
}

template <class Work>
constexpr auto* few = bytes_kernel<Work, FewSpans<Stop>>;
template <class Work>
constexpr auto* many = bytes_kernel<Work, ManySpans<Stop>>;

}  // namespace

KernelList bytes_kernels() noexcept {
  static const void* const kernels[] = {address_of(few<Copy>), address_of(many<Copy>), address_of(few<Swap>),
                                        address_of(many<Swap>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t exchange(const ddp_gpu_span* spans, int64_t count, void* stream) noexcept {
  return launch_spans<Stop>(few<Swap>, many<Swap>, Stop{nullptr}, spans, count, kTile, 1, 1, stream);
}

int32_t copy_bytes(const ddp_gpu_span* spans, int64_t count, ddp_gpu_stop stop, void* stream) noexcept {
  return launch_spans<Stop>(few<Copy>, many<Copy>, Stop{stop}, spans, count, kTile, 1, 1, stream);
}

}  // namespace ddp::cuda
