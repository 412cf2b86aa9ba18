#include "model/gpu_gradients.hpp"

namespace ddp::model {

void GpuGradients::zero(void* stream) {
  spans_.clear();
  for (const Parameter& parameter : table_.parameters())
    if (const Tensor& grad = parameter.grad; grad.is_on_gpu())
      spans_.add(grad.dtype, grad.dtype, nullptr, grad.data, grad.count);
  spans_.copy(device_, stream, "setting gradients to zero");
}

void GpuGradients::change(double factor, double limit, void* stream) {
  spans_.clear();
  for (const Parameter& parameter : table_.parameters())
    if (parameter.grad.is_on_gpu()) spans_.add(parameter.grad);
  spans_.move(device_, factor, limit, nullptr, stream, "changing gradients");
}

void GpuGradients::add(const Tensor& part) { norms().add(part); }

void GpuGradients::require_no_capture(void* stream, const char* function) const {
  device_.refuse_capture(stream, function, "the host has to wait for the norm");
}

gpu::Norms& GpuGradients::norms() {
  if (norms_ == nullptr) norms_ = std::make_unique<gpu::Norms>(device_);
  return *norms_;
}

}  // namespace ddp::model
