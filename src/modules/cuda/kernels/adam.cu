// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW over many parameters in one launch.
// Tested by unit/cuda/rules_test.cpp (the formula, masters).
#include "modules/cuda/kernels/update.cuh"

namespace ddp::cuda {
namespace {

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) adam_kernel(const __grid_constant__ Parameters p) {
  if (halted(p.step.stop, p.step.gate)) return;
  const Shaping<Wide<E>> shaping = p.step.now();
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    update_piece<E>(piece, first, count, shaping, AdamRule<Wide<E>>{p.rules[piece.rule]});
  });
}

template <class E, class Parameters>
__global__ void __launch_bounds__(kThreads) planned_adam_kernel(const __grid_constant__ Parameters p) {
  using T = Wide<E>;
  if (halted(p.step.stop, p.step.gate)) return;
  const Shaping<T> shaping = p.step.now();
  each_tile<kUpdateTile>(p.table, [&](const UpdatePiece& piece, uint32_t first, uint32_t count) {
    const ddp_gpu_planned_rule& planned = p.rules[piece.rule];
    if (planned.active != 0) update_piece<E>(piece, first, count, shaping, AdamRule<T>{AdamScalars<T>(planned.adam)});
  });
}

template <class E>
constexpr auto* few = adam_kernel<E, FewUpdates<AdamScalars<Wide<E>>, Wide<E>>>;
template <class E>
constexpr auto* many = adam_kernel<E, ManyUpdates<AdamScalars<Wide<E>>, Wide<E>>>;
template <class E>
constexpr auto* few_planned = planned_adam_kernel<E, PlannedIn<Wide<E>, kSmall>>;
template <class E>
constexpr auto* many_planned = planned_adam_kernel<E, PlannedIn<Wide<E>, kLarge>>;

}  // namespace

KernelList adam_kernels() noexcept {
#define DDP_UPDATES(E) address_of(few<E>), address_of(many<E>), address_of(few_planned<E>), address_of(many_planned<E>)
  static const void* const kernels[] = {DDP_UPDATES(float), DDP_UPDATES(double), DDP_UPDATES(Half), DDP_UPDATES(Bfloat)};
#undef DDP_UPDATES
  return {kernels, static_cast<int64_t>(std::size(kernels))};
}

int32_t adam_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count,
                  int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_updates<AdamScalars<Wide<E>>, E>(few<E>, many<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

int32_t planned_adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                     int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept {
  return with_element(dtype, [&](auto element) {
    using E = decltype(element);
    return launch_planned<E>(few_planned<E>, many_planned<E>, updates, count, rules, rule_count, *shape, stop, stream);
  });
}

}  // namespace ddp::cuda
