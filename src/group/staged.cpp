// SPDX-License-Identifier: Apache-2.0
#include "group/staged.hpp"

#include <algorithm>
#include <utility>

#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "group/gpu.hpp"
#include "group/group.hpp"

namespace ddp::group {
namespace {

/// The same tensor in other memory.
Tensor in_host(Tensor tensor, std::byte* data) noexcept {
  tensor.data = data;
  tensor.device_index = -1;
  tensor.device = nullptr;
  return tensor;
}

}  // namespace

void StagedTensors::check() const { group_.health().check_no_fault(); }

/// The other ranks wait for this one: a lack of memory breaks the group as a lost GPU does, wrong arguments do not.
template <class Body>
auto StagedTensors::or_fail(const Body& body) const {
  return on_error(body, [this](const Error& error) {
    is_own(error) ? group_.health().give_up(function_, error) : group_.health().fail(error);
  });
}

StagedTensors::OnGpu StagedTensors::stage(const Tensor& tensor) {
  gpu::of(tensor).refuse_capture(stream_, function_, "its bytes go through host memory");
  OnGpu staged{tensor, group_.gpu().staging().take(tensor.bytes(), [this] { check(); })};
  staged.block.check_stream(stream_);
  return staged;
}

Tensor StagedTensors::read(const Tensor& tensor) {
  if (!tensor.is_on_gpu()) return tensor;
  return or_fail([&] {
    inputs_.push_back(stage(tensor));
    gpu::Staging::Lease& block = inputs_.back().block;
    block.fetch(tensor.data, tensor.bytes(), stream_);
    return in_host(tensor, block.data());
  });
}

Tensor StagedTensors::write(const Tensor& tensor) {
  if (!tensor.is_on_gpu()) return tensor;
  return or_fail([&] {
    output_.emplace(stage(tensor));
    return in_host(tensor, output_->block.data());
  });
}

bool StagedTensors::is_ready() const {
  return std::all_of(inputs_.begin(), inputs_.end(), [](const OnGpu& each) { return each.block.is_done(); });
}

void StagedTensors::await() const {
  or_fail([&] {
    for (const OnGpu& each : inputs_) each.block.await([this] { check(); });
  });
}

void StagedTensors::deliver() {
  if (!output_.has_value()) return;
  or_fail([&] {
    const Tensor& tensor = output_->tensor;
    gpu::of(tensor).refuse_capture(stream_, function_, "what came is copied to the GPU in the order of this stream");
    output_->block.store(tensor.data, tensor.bytes(), stream_);
  });
  output_.reset();
}

}  // namespace ddp::group
