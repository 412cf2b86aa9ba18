// SPDX-License-Identifier: Apache-2.0
#include "model/awaited_state.hpp"

#include <utility>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "device/device.hpp"

namespace ddp::model {
namespace {

bool are_alike(const StateTensor& a, const StateTensor& b) noexcept {
  return a.name == b.name && a.tensor.dtype == b.tensor.dtype && a.tensor.count == b.tensor.count &&
         a.tensor.is_on_gpu() == b.tensor.is_on_gpu();
}

}  // namespace

std::string AwaitedState::describe(ReplicaState& state) {
  const std::vector<StateTensor> tensors = state.state_tensors();
  ByteWriter writer;
  writer.text(state.kind()).number(state.steps()).number(state.optimizer_steps());
  writer.number(static_cast<uint64_t>(tensors.size()));
  for (const StateTensor& each : tensors)
    writer.text(each.name)
        .number(static_cast<int32_t>(each.tensor.dtype))
        .number(each.tensor.count)
        .number(static_cast<uint8_t>(each.tensor.is_on_gpu()));
  return std::move(writer).bytes();
}

AwaitedState::AwaitedState(std::string_view description, const Parameters& table) {
  ByteReader reader(description);
  kind_ = reader.text();
  steps_ = reader.number<int64_t>();
  optimizer_steps_ = reader.number<int64_t>();
  for (auto left = reader.number<uint64_t>(); left > 0; --left) {
    StateTensor made;
    made.name = reader.text();
    const auto dtype = static_cast<ddp_dtype>(reader.number<int32_t>());
    const auto count = reader.number<int64_t>();
    const bool on_gpu = reader.number<uint8_t>() != 0;
    const device::Device* const home = on_gpu ? table.device() : &device::host();
    if (home == nullptr) throw Error(DDP_ERROR_INTERNAL, "a state lies on a GPU, and no parameter does");
    memory_.emplace_back(*home, count * dtype_size(dtype), "the state of an optimizer that is still to be made");
    made.tensor = flat_tensor(memory_.back().data(), dtype, count);
    if (on_gpu) {
      made.tensor.device = home;
      for (const Parameter& each : table.parameters())
        if (each.value.is_on_gpu()) made.tensor.device_index = each.value.device_index;
    }
    tensors_.push_back(std::move(made));
  }
}

void AwaitedState::give(ReplicaState& to) const {
  const auto refuse = [&](const std::string& what) {
    throw make_error(DDP_ERROR_MISMATCH,
                     "this rank has joined others, which have %s with %zu tensors here, and it makes %s; make the same "
                     "optimizers and averages in the same order",
                     kind_.c_str(), tensors_.size(), what.c_str());
  };
  if (kind_ != to.kind() || !to.is_replicated())
    refuse(std::string(to.kind()) + (to.is_replicated() ? "" : " with shard = 1"));
  const std::vector<StateTensor> theirs = to.state_tensors();
  bool alike = theirs.size() == tensors_.size();
  for (size_t k = 0; alike && k < theirs.size(); ++k) alike = are_alike(theirs[k], tensors_[k]);
  if (!alike) refuse(std::string(to.kind()) + " with " + std::to_string(theirs.size()) + " tensors, or others");
  to.load_fields(fields_);
  for (size_t k = 0; k < theirs.size(); ++k) {
    const device::Device& home = device::of(theirs[k].tensor);
    home.copy(theirs[k].tensor.data, tensors_[k].tensor.data, theirs[k].tensor.bytes(), nullptr);
    if (!home.is_immediate()) home.synchronize(nullptr);
  }
}

}  // namespace ddp::model
