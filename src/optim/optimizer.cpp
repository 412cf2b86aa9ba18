// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <cstring>

#include "device/device.hpp"
#include "device/gpu/device.hpp"
#include "model/replicas.hpp"

namespace ddp::optim {

void Optimizer::copy_loss_scale(const Tensor& to, void* stream) {
  constexpr const char* kFunction = "ddp_optimizer_copy_loss_scale";
  if (to.count != 1 || (to.dtype != DDP_F32 && to.dtype != DDP_F64))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: tensor is %s; it must have one element, F32 or F64", kFunction,
                     describe(to).c_str());
  const device::Device& home = device::of(to);
  home.refuse_capture(stream, kFunction,
                      "the host has to wait; make one step before, of a model whose parameters are all on the GPU");
  const double scale = loss_scale();
  const auto narrow = static_cast<float>(scale);
  const void* const from = to.dtype == DDP_F64 ? static_cast<const void*>(&scale) : &narrow;
  home.copy(to.data, from, to.bytes(), stream);
  home.synchronize(stream);  // it comes from this function's memory
}

void Optimizer::join_others() {
  for (const auto& state : model().replicas().kept_equal())
    if (state.get() != this && state->optimizer_steps() >= 0) return share(state->state_fields());
}

}  // namespace ddp::optim
