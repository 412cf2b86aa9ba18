#include "update/ema.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "device/cpu/arrays.hpp"
#include "update/fields.hpp"
#include "update/kernels.hpp"

namespace ddp {
namespace {

constexpr size_t kMaxDecays = 16;

void check_decays(const std::vector<double>& decays) {
  if (decays.empty() || decays.size() > kMaxDecays)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: count is %zu; 1 to %zu decays are possible", decays.size(), kMaxDecays);
  for (size_t k = 0; k < decays.size(); ++k) {
    if (!(decays[k] >= 0 && decays[k] < 1))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: decays[%zu] is %g; it must be 0 or more and below 1", k, decays[k]);
    const auto before = std::find(decays.begin(), decays.begin() + static_cast<std::ptrdiff_t>(k), decays[k]);
    if (before - decays.begin() < static_cast<std::ptrdiff_t>(k))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: decays[%zu] and decays[%zu] are both %g; they must differ",
                       static_cast<size_t>(before - decays.begin()), k, decays[k]);
  }
}

/// 16-bit parameters have averages of another type.
bool is_exchanged(const Parameter& parameter) noexcept { return moment_dtype(parameter.value.dtype) == parameter.value.dtype; }

void exchange(std::byte* a, std::byte* b, size_t bytes) noexcept {
  std::array<std::byte, 4096> held;
  for (size_t at = 0; at < bytes; at += held.size()) {
    const size_t now = std::min(held.size(), bytes - at);
    std::memcpy(held.data(), a + at, now);
    std::memcpy(a + at, b + at, now);
    std::memcpy(b + at, held.data(), now);
  }
}

}  // namespace

Ema::Ema(std::shared_ptr<Model> model, std::vector<double> decays)
    : model_(std::move(model)), decays_(std::move(decays)), averages_(decays_.size()) {
  check_decays(decays_);
}

void Ema::update(void*) {
  model_->require_ready("ddp_ema_update");
  if (swapped_ >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_ema_update: the parameters hold average %d; swap it back first with ddp_ema_swap", swapped_);
  averages_.allocate(model_->table());
  if (updates_ == 0) {
    start();
  } else {
    for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
      const Tensor& value = model_->table().parameter(i).value;
      std::array<void*, kMaxDecays> places{};
      for (size_t k = 0; k < decays_.size(); ++k) places[k] = averages_.data(i, k);
      ema_update(decays_.data(), static_cast<int32_t>(decays_.size()), value.dtype, value.data, places.data(), value.count);
    }
  }
  ++updates_;
}

void Ema::start() {
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Tensor& value = model_->table().parameter(i).value;
    for (size_t k = 0; k < decays_.size(); ++k)
      cpu::convert(value.dtype, value.data, moment_dtype(value.dtype), averages_.data(i, k), value.count);
  }
}

void Ema::swap(int32_t which, void*) {
  if (which < 0 || static_cast<size_t>(which) >= decays_.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_swap: which is %d; there are %zu averages, from 0 on", which, decays_.size());
  model_->require_ready("ddp_ema_swap");
  if (updates_ == 0)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_ema_swap: there is no average yet; call ddp_ema_update first");
  if (swapped_ >= 0 && swapped_ != which)
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_ema_swap: the parameters hold average %d, not %d; swap that one back first", swapped_, which);
  if (swapped_ < 0) {
    swap_in(which);
  } else {
    swap_back();
  }
}

void Ema::swap_in(int32_t which) {
  const std::vector<Parameter>& parameters = model_->table().parameters();
  std::vector<std::vector<std::byte>> saved(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& value = parameters[i].value;
    if (!is_exchanged(parameters[i])) saved[i].assign(value.data, value.data + value.bytes());
  }
  saved_ = std::move(saved);  // from here on nothing fails
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Parameter& parameter = model_->table().parameter(i);
    const Tensor& value = parameter.value;
    std::byte* const average = averages_.data(i, static_cast<size_t>(which));
    if (is_exchanged(parameter)) {
      exchange(value.data, average, static_cast<size_t>(value.bytes()));
    } else {
      cpu::convert(moment_dtype(value.dtype), average, value.dtype, value.data, value.count);
    }
  }
  swapped_ = which;
}

void Ema::swap_back() {
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Parameter& parameter = model_->table().parameter(i);
    const Tensor& value = parameter.value;
    if (is_exchanged(parameter)) {
      exchange(value.data, averages_.data(i, static_cast<size_t>(swapped_)), static_cast<size_t>(value.bytes()));
    } else {
      std::copy_n(saved_[static_cast<size_t>(i)].data(), value.bytes(), value.data);
    }
  }
  saved_.clear();
  swapped_ = -1;
}

std::vector<StateTensor> Ema::state_tensors() {
  if (swapped_ >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE, "the parameters hold average %d; swap it back with ddp_ema_swap before a checkpoint", swapped_);
  const Table& table = model_->table();
  averages_.allocate(table);
  std::vector<StateTensor> tensors;
  for (size_t k = 0; k < decays_.size(); ++k)
    for (int32_t i = 0; i < table.parameter_count(); ++i)
      tensors.push_back({number_text(decays_[k]) + "." + table.parameter(i).name, averages_.tensor(table, i, k)});
  return tensors;
}

std::map<std::string, std::string> Ema::state_fields() const { return {{"updates", std::to_string(updates_)}}; }

void Ema::load_fields(const std::map<std::string, std::string>& fields) { updates_ = read_count(fields, "updates"); }

void Ema::begin_at_parameter(const std::string& name) {
  const std::vector<StateTensor> tensors = state_tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != name) continue;
    const Tensor& value = model_->table().parameters()[i % model_->table().parameters().size()].value;
    cpu::convert(value.dtype, value.data, tensors[i].tensor.dtype, tensors[i].tensor.data, value.count);
  }
}

}  // namespace ddp
