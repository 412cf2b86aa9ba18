// SPDX-License-Identifier: Apache-2.0
// A step of an optimizer, decided and counted by one block: page-locked memory is read and written once, and the data for
// the update kernels is in device memory. Tested by unit/cuda/plan_test.cpp.
#include "modules/cuda/kernels/launch.cuh"
#include "modules/cuda/kernels/plan.hpp"

namespace ddp::cuda {
namespace {

struct PlanHeader {
  ddp_gpu_step step;  // parameters and rules from the first of this launch on, `count` of them
  ddp_gpu_stop stop;
  int32_t decides;  // not 0: this launch is the step's first
  int32_t reserved;
};

/// With a bit for each parameter of the launch that takes part.
template <size_t bytes>
struct PlanParameters {
  static constexpr int64_t kWords = (bytes - sizeof(PlanHeader)) / sizeof(uint64_t);
  PlanHeader header;
  uint64_t used[kWords];
};
static_assert(sizeof(PlanParameters<kLarge>) <= kLarge);

template <size_t bytes>
__global__ void __launch_bounds__(kThreads) plan_kernel(const __grid_constant__ PlanParameters<bytes> p) {
  __shared__ uint32_t is_left_out;
  __shared__ double rate;
  const ddp_gpu_step& step = p.header.step;
  if (threadIdx.x == 0) {
    ddp_gpu_gate gate{1, 0, 1, 0};
    if (p.header.decides == 0)
      gate = *step.gate;
    else if (p.header.stop == nullptr || *static_cast<const volatile uint32_t*>(p.header.stop) == 0)
      gate = planned_gate(*step.progress, step.words, step.max_norm, step.skip_nonfinite != 0);
    if (p.header.decides != 0) *step.gate = gate;
    is_left_out = gate.skip;
    rate = step.has_rate != 0 ? step.rate : step.progress->rate;
  }
  __syncthreads();
  for (int64_t k = threadIdx.x; k < step.count; k += kThreads) {
    const bool takes_part = is_left_out == 0 && (p.used[k / 64] >> (k % 64) & 1) != 0;
    step.rules[k] = planned_rule(step.rule, rate, step.parameters[k], takes_part);
  }
}

template <size_t bytes>
int32_t launch_plan(const ddp_gpu_step& step, ddp_gpu_stop stop, void* stream) noexcept {
  constexpr int64_t kMost = PlanParameters<bytes>::kWords * 64;
  PlanParameters<bytes> p;
  p.header = {step, stop, 1, 0};
  p.header.step.used = nullptr;
  for (int64_t first = 0; first == 0 || first < step.count; first += kMost) {
    const int64_t count = std::min(kMost, step.count - first);
    p.header.step.count = count;
    p.header.step.parameters = step.parameters + first;
    p.header.step.rules = step.rules + first;
    std::copy_n(step.used + first / 64, (count + 63) / 64, p.used);
    if (const int32_t code = launch(plan_kernel<bytes>, p, dim3(1), dim3(kThreads), stream); code != 0) return code;
    p.header.decides = 0;
  }
  return 0;
}

}  // namespace

KernelList plan_kernels() noexcept {
  static const void* const kernels[] = {address_of(plan_kernel<kSmall>), address_of(plan_kernel<kLarge>)};
  return {kernels, 2};
}

int32_t plan_step(const ddp_gpu_step* step, ddp_gpu_stop stop, void* stream) noexcept {
  if (step->count < 0 || step->progress == nullptr || step->gate == nullptr) return kBadArgument;
  return step->count <= PlanParameters<kSmall>::kWords * 64 ? launch_plan<kSmall>(*step, stop, stream)
                                                            : launch_plan<kLarge>(*step, stop, stream);
}

}  // namespace ddp::cuda
