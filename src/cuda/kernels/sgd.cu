// Stochastic gradient descent over many parameters in one launch.
// Tested by unit/cuda/rules_test.cpp (the formula, masters).
#include "cuda/kernels/update.cuh"

namespace ddp::cuda {
namespace {

template <class T>
struct SgdRule {
  SgdScalars<T> scalars;
  __device__ __forceinline__ void operator()(T grad, T& value, T& buffer, T&) const { sgd(scalars, grad, value, buffer); }
};

/// With or without a momentum buffer, which the rule of the piece says.
template <class E, bool has_master, class T>
__device__ __forceinline__ void sgd_tile(const UpdatePiece& piece, uint32_t first, uint32_t count, T scale, T limit,
                                         const SgdRule<T>& rule) {
  if (rule.scalars.mode != 0)
    update_tile<E, 1, has_master>(piece, first, count, scale, limit, rule);
  else
    update_tile<E, 0, has_master>(piece, first, count, scale, limit, rule);
}

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) sgd_kernel(const __grid_constant__ Parameters p) {
  using T = Wide<E>;
  if (halted(p.step.stop, p.step.gate)) return;
  const T scale = p.step.scale_now();
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    const SgdRule<T> rule{p.rules[piece.rule]};
    if constexpr (sizeof(E) == 2) {
      if (piece.master != nullptr) return sgd_tile<E, true>(piece, first, count, scale, p.step.limit, rule);
    }
    sgd_tile<E, false>(piece, first, count, scale, p.step.limit, rule);
  });
}

template <class E>
constexpr auto* few = sgd_kernel<E, FewUpdates<SgdScalars<Wide<E>>, Wide<E>>>;
template <class E>
constexpr auto* many = sgd_kernel<E, ManyUpdates<SgdScalars<Wide<E>>, Wide<E>>>;

}  // namespace

KernelList sgd_kernels() noexcept {
  static const void* const kernels[] = {address_of(few<float>),  address_of(few<double>), address_of(few<Half>),
                                        address_of(few<Bfloat>), address_of(many<float>), address_of(many<double>),
                                        address_of(many<Half>),  address_of(many<Bfloat>)};
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t sgd_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_sgd_rule* rules, int64_t rule_count,
                 int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_updates<SgdScalars<Wide<E>>, E>(few<E>, many<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

}  // namespace ddp::cuda
