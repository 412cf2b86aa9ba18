// SPDX-License-Identifier: Apache-2.0
// Copies with conversion, factor and limit; products that are divided; copies of bits; zeros. The packing and unpacking of
// buckets, among others.
// Tested by unit/cuda/numbers_test.cpp and rules_test.cpp (the formula), tiles_test.cpp (the cutting), tree_sum_test.cpp.
#include <cmath>

#include "modules/cuda/kernels/joins.hpp"
#include "modules/cuda/kernels/rules.hpp"
#include "modules/cuda/kernels/spans.cuh"

namespace ddp::cuda {
namespace {

template <class W>
struct Shaping {
  W factor;
  W limit;  // or what is divided by
  ddp_gpu_stop stop;
};

constexpr uint32_t kTileBytes = 16 * 1024;

/// The wider compute type of two elements.
template <class From, class To>
struct Between {
  using Type = float;
};
template <class To>
struct Between<double, To> {
  using Type = double;
};
template <class From>
struct Between<From, double> {
  using Type = double;
};
template <>
struct Between<double, double> {
  using Type = double;
};

/// to = shaped(from * factor).
template <class From, class To>
struct Shape {
  using E = From;
  using Out = To;
  using W = typename Between<From, To>::Type;
  W factor, limit;
  __device__ __forceinline__ To operator()(From x) const {
    return Narrow<To>::of(shaped(static_cast<W>(widened(x)), factor, limit));
  }
};

/// to = from * factor / divisor. A divisor of 1 costs nothing.
template <class From, class To>
struct Quotient {
  using E = From;
  using Out = To;
  using W = typename Between<From, To>::Type;
  W factor, divisor;
  __device__ __forceinline__ To operator()(From x) const {
    return Narrow<To>::of(quotient(static_cast<W>(widened(x)), factor, divisor, divisor != 1));
  }
};

/// The same bits.
template <class Bits>
struct Same {
  using E = Bits;
  using Out = Bits;
  using W = float;
  W factor, limit;
  __device__ __forceinline__ Bits operator()(Bits x) const { return x; }
};

template <class Function>
struct Move {
  using From = typename Function::E;
  using To = typename Function::Out;
  const From* from;
  To* to;
  Function function;
  template <uint32_t width>
  using Loaded = Pack<From, width>;
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    return load_pack<From, width>(from, at);
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& loaded) const {
    Pack<To, width> out;
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) out.element[k] = function(loaded.element[k]);
    store_pack<To, width>(to, at, out);
  }
};

/// All bits 0, which is 0 in every type.
template <class To>
struct Zeros {
  To* to;
  template <uint32_t width>
  using Loaded = Pack<To, width>;
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t) const {
    return {};
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, const Loaded<width>& zeros) const {
    store_pack<To, width>(to, at, zeros);
  }
};

template <class Function>
constexpr uint32_t kWidest = sizeof(typename Function::E) > sizeof(typename Function::Out) ? sizeof(typename Function::E)
                                                                                           : sizeof(typename Function::Out);

template <class Function>
constexpr uint32_t kTile = kTileBytes / kWidest<Function>;

template <class Function, class Parameters>
__global__ void __launch_bounds__(kThreads) move_kernel(const __grid_constant__ Parameters p) {
  using From = typename Function::E;
  using To = typename Function::Out;
  constexpr uint32_t kWidth = 16 / kWidest<Function>;
  if (halted(p.extra.stop)) return;
  each_tile<kTile<Function>>(p.table, [&](const SpanPiece& piece, uint32_t first, uint32_t count) {
    To* const to = static_cast<To*>(piece.to) + first;
    const From* const from = piece.from != nullptr ? static_cast<const From*>(piece.from) + first : nullptr;  // NULL: zeros
    const Lane lanes[] = {{to, sizeof(To)}, {from, sizeof(From)}};
    const Split cut = split(count, kWidth, lanes);
    if (from != nullptr)
      each_element<kWidth, 4>(cut, count, Move<Function>{from, to, Function{p.extra.factor, p.extra.limit}});
    else
      each_element<kWidth, 4>(cut, count, Zeros<To>{to});
  });
}

template <class Function>
constexpr auto* few = move_kernel<Function, FewSpans<Shaping<typename Function::W>>>;
template <class Function>
constexpr auto* many = move_kernel<Function, ManySpans<Shaping<typename Function::W>>>;

template <class Function>
int32_t run(const ddp_gpu_span* spans, int64_t count, double factor, double limit, ddp_gpu_stop stop,
            void* stream) noexcept {
  using W = typename Function::W;
  const Shaping<W> extra{static_cast<W>(factor), static_cast<W>(limit), stop};
  return launch_spans<Shaping<W>>(few<Function>, many<Function>, extra, spans, count, kTile<Function>,
                                  sizeof(typename Function::E), sizeof(typename Function::Out), stream);
}

}  // namespace

#define DDP_BOTH(Function) address_of(few<Function>), address_of(many<Function>)
#define DDP_TO(From, To) DDP_BOTH(Shape<From DDP_COMMA To>), DDP_BOTH(Quotient<From DDP_COMMA To>)
#define DDP_COMMA ,
#define DDP_FROM(From) DDP_TO(From, float), DDP_TO(From, double), DDP_TO(From, Half), DDP_TO(From, Bfloat)

KernelList move_kernels() noexcept {
  static const void* const kernels[] = {DDP_FROM(float),         DDP_FROM(double),         DDP_FROM(Half),
                                        DDP_FROM(Bfloat),        DDP_BOTH(Same<uint16_t>), DDP_BOTH(Same<uint32_t>),
                                        DDP_BOTH(Same<uint64_t>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t move(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor, double limit,
             ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(from_dtype, [&](auto from) {
    return with_element(to_dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      if constexpr (std::is_same_v<From, To>) {
        using Bits = std::conditional_t<sizeof(To) == 2, uint16_t, std::conditional_t<sizeof(To) == 4, uint32_t, uint64_t>>;
        if (factor == 1 && std::isinf(limit)) return run<Same<Bits>>(spans, count, factor, limit, stop, stream);
      }
      return run<Shape<From, To>>(spans, count, factor, limit, stop, stream);
    });
  });
}

int32_t move_quotient(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor,
                      double divisor, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(from_dtype, [&](auto from) {
    return with_element(to_dtype, [&](auto to) {
      return run<Quotient<decltype(from), decltype(to)>>(spans, count, factor, divisor, stop, stream);
    });
  });
}

}  // namespace ddp::cuda
