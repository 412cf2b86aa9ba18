// SPDX-License-Identifier: Apache-2.0
#include "optim/gpu_decision.hpp"

#include <cstring>

namespace ddp::optim {

const ddp_gpu_gate* GpuDecision::decide(double loss_scale, double max_norm, void* stream) {
  const gpu::Device::Current current(device_);
  auto* const gate = reinterpret_cast<ddp_gpu_gate*>(gate_.data());
  const int64_t* const words = norms_.start_sum(2, stream);
  const gpu::Timed timed(device_, stream, trace::GpuWork::kDecide);
  device_.check(device_.table().decide(words, loss_scale, max_norm, 0, gate, stream), "deciding about a step");
  device_.copy(copy_.host(), gate, sizeof *gate, stream);
  decided_.record(stream);
  return gate;
}

double GpuDecision::norm() const {
  decided_.synchronize();
  ddp_gpu_gate gate;
  std::memcpy(&gate, copy_.host(), sizeof gate);
  return gate.norm;
}

}  // namespace ddp::optim
