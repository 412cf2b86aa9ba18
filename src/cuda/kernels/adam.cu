// Adam and AdamW over many parameters in one launch.
// Tested by unit/cuda/rules_test.cpp (the formula, masters).
#include "cuda/kernels/update.cuh"

namespace ddp::cuda {
namespace {

template <class T>
struct AdamRule {
  AdamScalars<T> scalars;
  __device__ __forceinline__ void operator()(T grad, T& value, T& mean, T& square) const {
    adam(scalars, grad, value, mean, square);
  }
};

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) adam_kernel(const __grid_constant__ Parameters p) {
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

template <class E>
constexpr auto* few = adam_kernel<E, FewUpdates<AdamScalars<Wide<E>>, Wide<E>>>;
template <class E>
constexpr auto* many = adam_kernel<E, ManyUpdates<AdamScalars<Wide<E>>, Wide<E>>>;

}  // namespace

KernelList adam_kernels() noexcept {
  static const void* const kernels[] = {address_of(few<float>),  address_of(few<double>), address_of(few<Half>),
                                        address_of(few<Bfloat>), address_of(many<float>), address_of(many<double>),
                                        address_of(many<Half>),  address_of(many<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t adam_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count,
                  int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_updates<AdamScalars<Wide<E>>, E>(few<E>, many<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

}  // namespace ddp::cuda
