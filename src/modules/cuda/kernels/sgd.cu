// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent over many parameters in one launch.
// Tested by unit/cuda/rules_test.cpp (the formula, masters).
#include "modules/cuda/kernels/update.cuh"

namespace ddp::cuda {
namespace {

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) sgd_kernel(const __grid_constant__ Parameters p) {
  if (halted(p.step.stop, p.step.gate)) return;
  const Shaping<Wide<E>> shaping = p.step.now();
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    update_piece<E>(piece, first, count, shaping, SgdRule<Wide<E>>{p.rules[piece.rule]});
  });
}

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) planned_sgd_kernel(const __grid_constant__ Parameters p) {
  using T = Wide<E>;
  if (halted(p.step.stop, p.step.gate)) return;
  const Shaping<T> shaping = p.step.now();
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    const ddp_gpu_planned_rule& planned = p.rules[piece.rule];
    if (planned.active != 0) update_piece<E>(piece, first, count, shaping, SgdRule<T>{SgdScalars<T>(planned.sgd)});
  });
}

template <class E>
constexpr auto* few = sgd_kernel<E, FewUpdates<SgdScalars<Wide<E>>, Wide<E>>>;
template <class E>
constexpr auto* many = sgd_kernel<E, ManyUpdates<SgdScalars<Wide<E>>, Wide<E>>>;
template <class E>
constexpr auto* few_planned = planned_sgd_kernel<E, PlannedIn<Wide<E>, kSmall>>;
template <class E>
constexpr auto* many_planned = planned_sgd_kernel<E, PlannedIn<Wide<E>, kLarge>>;

}  // namespace

KernelList sgd_kernels() noexcept {
#define DDP_UPDATES(E) address_of(few<E>), address_of(many<E>), address_of(few_planned<E>), address_of(many_planned<E>)
  static const void* const kernels[] = {DDP_UPDATES(float), DDP_UPDATES(double), DDP_UPDATES(Half), DDP_UPDATES(Bfloat)};
#undef DDP_UPDATES
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t sgd_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_sgd_rule* rules, int64_t rule_count,
                 int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_updates<SgdScalars<Wide<E>>, E>(few<E>, many<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

int32_t planned_sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                    int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_planned<E>(few_planned<E>, many_planned<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

}  // namespace ddp::cuda
