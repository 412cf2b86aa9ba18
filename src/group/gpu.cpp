// SPDX-License-Identifier: Apache-2.0
#include "group/gpu.hpp"

#include <utility>

#include "device/gpu/own_gpu.hpp"

namespace ddp::group {

Gpu::Gpu(const ddp_group_options& options, std::shared_ptr<gpu::OwnGpu> own, std::shared_ptr<collective::GpuSide> side)
    : options_(options), own_(std::move(own)), side_(std::move(side)) {}

const gpu::Device& Gpu::device() const { return own_->open(); }
gpu::Scratch& Gpu::scratch() const { return own_->scratch(); }
gpu::Staging& Gpu::staging() const { return own_->staging(); }
void Gpu::bind(Tensor& tensor, const char* what) const { own_->bind(tensor, what); }
void Gpu::require_host(const Tensor& tensor, const char* what, const char* instead) const {
  own_->require_host(tensor, what, instead);
}

const uint32_t* Gpu::stop_on(void* stream) const { return side_->stop_on(stream, collective::StopRead::kByMany); }

const uint32_t* Gpu::stop_step_on(void* stream) const { return options_.recoverable != 0 ? nullptr : stop_on(stream); }

const uint32_t* Gpu::stop_step_word() const {
  return options_.recoverable != 0 ? nullptr : side_->stop_on(nullptr, collective::StopRead::kOnce);
}

void Gpu::in_line(void* stream, const std::function<void(void* communication)>& body) const {
  side_->order_after(stream);
  body(side_->stream());
  side_->order_before(stream);
}

}  // namespace ddp::group
