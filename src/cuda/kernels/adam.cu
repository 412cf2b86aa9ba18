// Adam and AdamW over many parameters in one launch. Tested by unit/cuda/rules_test.cpp (the formula, masters).
#include "cuda/kernels/update.cuh"

namespace ddp::cuda {
namespace {

template <class T>
struct AdamRule {
  AdamScalars<T> scalars;
  __device__ __forceinline__ void operator()(T grad, T& value, T& mean, T& square) const { adam(scalars, grad, value, mean, square); }
};

template <class E>
using Parameters = UpdateParameters<AdamScalars<Wide<E>>, Wide<E>, kUpdatePieces<AdamScalars<Wide<E>>, Wide<E>>>;

template <class E>
__global__ void __launch_bounds__(kThreads) adam_kernel(const __grid_constant__ Parameters<E> p) {
  static_assert(sizeof(Parameters<E>) <= kLarge);
  using T = Wide<E>;
  if (halted(p.step.stop, p.step.gate)) return;
  const T scale = p.step.scale_now();
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    const AdamRule<T> rule{p.rules[piece.rule]};
    if constexpr (sizeof(E) == 2) {
      if (piece.master != nullptr) return update_tile<E, 2, true>(piece, first, count, scale, p.step.limit, rule);
    }
    update_tile<E, 2, false>(piece, first, count, scale, p.step.limit, rule);
  });
}

}  // namespace

KernelList adam_kernels() noexcept {
  static const void* const kernels[] = {address_of(adam_kernel<float>), address_of(adam_kernel<double>), address_of(adam_kernel<Half>),
                                        address_of(adam_kernel<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t adam_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count, int32_t dtype,
                  const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_updates<AdamScalars<Wide<E>>, E>(adam_kernel<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

}  // namespace ddp::cuda
