// SPDX-License-Identifier: Apache-2.0
#include "core/parameters.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace ddp {
namespace {

std::string home_of(const Tensor& tensor) {
  return tensor.is_on_gpu() ? "on GPU " + std::to_string(tensor.device_index) : "in host memory";
}

}  // namespace

void Parameters::check_name(const std::string& name) const {
  if (name.empty() || name.size() > 1024)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "a tensor's name must have 1 to 1024 bytes; this one has %zu", name.size());
  if (names_.count(name) != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "the name \"%s\" is registered already; names are unique among parameters and buffers", name.c_str());
}

void Parameters::check_memory(const Tensor& tensor, const std::string& what) const {
  if (const auto other = memory_.find(tensor))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the memory of %s overlaps the memory of %s; register shared memory once",
                     what.c_str(), name_of(*other).c_str());
}

std::string Parameters::name_of(const MemoryRanges::Owner& owner) const {
  const auto index = static_cast<size_t>(owner.index);
  if (owner.kind == MemoryRanges::Kind::kBuffer) return "buffer \"" + buffers_[index].name + "\"";
  const std::string parameter = "parameter \"" + parameters_[index].name + "\"";
  return owner.kind == MemoryRanges::Kind::kValue ? parameter : "the gradient of " + parameter;
}

void Parameters::place_grad(int32_t index, std::byte* data) {
  Tensor& grad = parameter(index).grad;
  grad.data = data;
  memory_.claim(grad, {MemoryRanges::Kind::kOwnGrad, index});
}

void Parameters::place_value(int32_t index, std::byte* data) {
  Parameter& of = parameter(index);
  memory_.release(of.value);
  of.value.data = data;
  of.owned_value = true;
  memory_.claim(of.value, {MemoryRanges::Kind::kValue, index});
}

void Parameters::move_grad(int32_t index, std::byte* data, const MemoryRanges::IsMarked& is_marked) {
  Tensor& grad = parameter(index).grad;
  if (grad.data == data && !memory_.is_contested(index)) return;
  Tensor moved = grad;
  moved.data = data;
  memory_.move_grad(index, grad, moved, is_marked);
  if (parameter(index).awaits_grad()) --awaited_;
  grad = moved;
}

void Parameters::await_grad(int32_t index) {
  Parameter& of = parameter(index);
  memory_.await_grad(index, of.grad);
  of.stand_in = of.grad.data;
  ++awaited_;
}

int32_t Parameters::first_awaited() const noexcept {
  if (awaited_ == 0) return MemoryRanges::kNobody;
  int32_t index = 0;
  while (!parameter(index).awaits_grad()) ++index;
  return index;
}

void Parameters::require_like_grad(int32_t index, const Tensor& given) const {
  const Parameter& of = parameter(index);
  if (given.dtype != of.declared || real_view(given).count != of.grad.count)
    throw make_error(
        DDP_ERROR_INVALID_ARGUMENT,
        "ddp_model_set_grad: the gradient of \"%s\" is %s but the parameter is %s: dtype and number of elements "
        "must be the same",
        of.name.c_str(), describe(given).c_str(), describe(declared_view(of.value, of.declared)).c_str());
  if (given.device_index != of.value.device_index)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_set_grad: the gradient of \"%s\" is %s but the parameter is %s; both must be in the same "
                     "memory",
                     of.name.c_str(), home_of(given).c_str(), home_of(of.value).c_str());
}

void Parameters::require_free(int32_t index, const Tensor& moved) const {
  if (const auto other = memory_.find_fixed(moved))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_set_grad: this memory for the gradient of \"%s\" overlaps the memory of %s",
                     parameter(index).name.c_str(), name_of(*other).c_str());
}

int32_t Parameters::add_parameter(std::string name, const Tensor& value, const Tensor* grad) {
  check_name(name);
  const std::string what = "parameter \"" + name + "\"";
  if (!is_floating(part_dtype(value.dtype)))
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "%s is %s; parameters are F32, F64, F16, BF16, C64 or C128 (register other tensors as buffers)",
                     what.c_str(), dtype_name(value.dtype));
  if (grad != nullptr && (!grad->same_shape(value) || grad->dtype != value.dtype))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the gradient of %s is %s but the parameter is %s", what.c_str(),
                     describe(*grad).c_str(), describe(value).c_str());
  const std::string grad_what = "the gradient of " + what;
  if (grad != nullptr && grad->device_index != value.device_index)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is %s but the parameter is %s; both must be in the same memory",
                     grad_what.c_str(), home_of(*grad).c_str(), home_of(value).c_str());
  check_memory(value, what);
  if (grad != nullptr) {
    check_memory(*grad, grad_what);
    if (grad->count > 0 && grad->data < value.data + value.bytes() && value.data < grad->data + grad->bytes())
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the memory of %s overlaps the parameter itself", grad_what.c_str());
    memory_.claim(*grad, {MemoryRanges::Kind::kGrad, parameter_count()});
  }
  memory_.claim(value, {MemoryRanges::Kind::kValue, parameter_count()});
  memory_.add_parameter();
  Parameter parameter;
  parameter.declared = value.dtype;
  parameter.value = real_view(value);
  parameter.owned_grad = grad == nullptr;
  parameter.grad = parameter.value;
  parameter.grad.data = grad != nullptr ? grad->data : nullptr;
  if (value.device != nullptr) device_ = value.device;
  names_.insert(name);
  parameter.name = std::move(name);
  parameters_.push_back(std::move(parameter));
  return parameter_count() - 1;
}

void Parameters::remove_parameter(int32_t index) {
  if (index < 0 || index >= parameter_count() || parameter(index).removed)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_remove_parameter: there is no parameter %d; %d were added, counted from 0", index,
                     parameter_count());
  Parameter& of = parameter(index);
  if (of.awaits_grad()) --awaited_;
  if (of.grad.data != nullptr && of.owned_grad) memory_.release(of.grad);
  if (of.grad.data != nullptr && !of.owned_grad) memory_.drop_grad(index, of.grad);
  memory_.release(of.value);
  names_.erase(of.name);
  Parameter gone;
  gone.declared = of.declared;
  gone.value = gone.grad = flat_tensor(nullptr, of.value.dtype, 0);
  gone.removed = true;
  of = std::move(gone);
}

void Parameters::remove_buffer(int32_t index) {
  const auto count = static_cast<int32_t>(buffers_.size());
  if (index < 0 || index >= count || buffers_[static_cast<size_t>(index)].removed)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_model_remove_buffer: there is no buffer %d; %d were added, counted from 0", index, count);
  Buffer& of = buffers_[static_cast<size_t>(index)];
  memory_.release(of.value);
  names_.erase(of.name);
  of = Buffer{"", flat_tensor(nullptr, of.value.dtype, 0), of.declared, true};
}

std::vector<int32_t> Parameters::present() const {
  std::vector<int32_t> indices;
  for (int32_t index = 0; index < parameter_count(); ++index)
    if (!parameter(index).removed) indices.push_back(index);
  return indices;
}

std::vector<int32_t> Parameters::positions_of(const std::vector<int32_t>& indices) const {
  const std::vector<int32_t> all = present();
  std::vector<int32_t> positions;
  for (const int32_t index : indices)
    if (const auto at = std::lower_bound(all.begin(), all.end(), index); at != all.end() && *at == index)
      positions.push_back(static_cast<int32_t>(at - all.begin()));
  return positions;
}

std::vector<int32_t> Parameters::indices_at(const std::vector<int32_t>& positions) const {
  const std::vector<int32_t> all = present();
  std::vector<int32_t> indices;
  for (const int32_t position : positions)
    if (position >= 0 && static_cast<size_t>(position) < all.size()) indices.push_back(all[static_cast<size_t>(position)]);
  return indices;
}

int32_t Parameters::add_buffer(std::string name, const Tensor& value) {
  check_name(name);
  const std::string what = "buffer \"" + name + "\"";
  check_memory(value, what);
  memory_.claim(value, {MemoryRanges::Kind::kBuffer, static_cast<int32_t>(buffers_.size())});
  names_.insert(name);
  buffers_.push_back(Buffer{std::move(name), real_view(value), value.dtype, false});
  return static_cast<int32_t>(buffers_.size()) - 1;
}

}  // namespace ddp
