#include "update/ema.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "device/cpu/arrays.hpp"
#include "update/kernels.hpp"
#include "update/schedule.hpp"

namespace ddp {
namespace {

constexpr const char* kWhat = "the averages' state";

/// Short enough to read in a checkpoint, long enough to be the same number again.
std::string decay_text(double decay) {
  char text[32];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, decay);
    if (parse_double(text, "decay", kWhat) == decay) break;
  }
  return text;
}

}  // namespace

Ema::Ema(std::shared_ptr<Model> model, std::vector<double> decays) : model_(std::move(model)), decays_(std::move(decays)) {
  if (decays_.empty() || decays_.size() > 16)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: count is %zu; 1 to 16 decays are possible", decays_.size());
  for (size_t i = 0; i < decays_.size(); ++i) {
    check_fraction(decays_[i], "ddp_ema_create: a decay");
    if (std::count(decays_.begin(), decays_.end(), decays_[i]) > 1)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: the decay %g is given twice", decays_[i]);
  }
}

void Ema::allocate() {
  const std::vector<Parameter>& parameters = model_->table().parameters();
  for (size_t p = averages_.size() / decays_.size(); p < parameters.size(); ++p) {
    std::vector<Array> added;
    for (size_t d = 0; d < decays_.size(); ++d)
      added.emplace_back(parameters[p].value.count * dtype_size(moment_dtype(parameters[p].value.dtype)));
    for (Array& array : added) averages_.push_back(std::move(array));
  }
}

void Ema::update() {
  model_->require_ready("ddp_ema_update");
  if (swapped_ >= 0)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_ema_update: an average is in the parameters' place; call ddp_ema_swap to swap back first");
  allocate();
  std::vector<void*> targets(decays_.size());
  for (size_t p = 0; p < model_->table().parameters().size(); ++p) {
    const Tensor& value = model_->table().parameters()[p].value;
    for (size_t d = 0; d < decays_.size(); ++d) targets[d] = average(d, p).data();
    if (updates_ == 0)
      for (void* target : targets) cpu::convert(value.dtype, value.data, moment_dtype(value.dtype), target, value.count);
    else
      ema_update(decays_.data(), static_cast<int32_t>(decays_.size()), value.dtype, value.data, targets.data(), value.count);
  }
  ++updates_;
}

void Ema::swap(int32_t which) {
  model_->require_ready("ddp_ema_swap");
  if (which < 0 || static_cast<size_t>(which) >= decays_.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_swap: which is %d; there are %zu averages, counted from 0", which, decays_.size());
  if (updates_ == 0) throw Error(DDP_ERROR_INVALID_STATE, "ddp_ema_swap: the averages hold nothing yet; call ddp_ema_update first");
  if (swapped_ >= 0 && swapped_ != which)
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_ema_swap: average %d is in the parameters' place; swap it back first", swapped_);
  for (size_t p = 0; p < model_->table().parameters().size(); ++p) {
    const Tensor& value = model_->table().parameters()[p].value;
    exchange(value, average(static_cast<size_t>(which), p));
  }
  swapped_ = swapped_ < 0 ? which : -1;
}

/// The average of a 16-bit parameter is wider than the parameter: while swapped in it is rounded, and the exact one is kept.
void Ema::exchange(const Tensor& value, Array& average) {
  const auto bytes = static_cast<size_t>(value.bytes());
  if (bytes == 0) return;
  if (moment_dtype(value.dtype) == value.dtype) {
    std::swap_ranges(value.data, value.data + bytes, average.data());
    return;
  }
  if (swapped_ < 0) {
    live_.emplace_back(value.bytes());
    std::memcpy(live_.back().data(), value.data, bytes);
    cpu::convert(moment_dtype(value.dtype), average.data(), value.dtype, value.data, value.count);
  } else {
    std::memcpy(value.data, live_.front().data(), bytes);
    live_.pop_front();
  }
}

std::vector<StateTensor> Ema::state_tensors() {
  if (swapped_ >= 0)
    throw Error(DDP_ERROR_INVALID_STATE, "an average is in the parameters' place; call ddp_ema_swap to swap back before saving or loading");
  allocate();
  std::vector<StateTensor> tensors;
  for (size_t d = 0; d < decays_.size(); ++d)
    for (size_t p = 0; p < model_->table().parameters().size(); ++p) {
      const Parameter& parameter = model_->table().parameters()[p];
      Tensor tensor = parameter.value;
      tensor.dtype = moment_dtype(parameter.value.dtype);
      tensor.data = average(d, p).data();
      tensors.push_back(StateTensor{decay_text(decays_[d]) + "." + parameter.name, tensor});
    }
  return tensors;
}

Fields Ema::state_fields() const {
  Fields fields;
  fields["updates"] = std::to_string(updates_);
  for (size_t d = 0; d < decays_.size(); ++d) fields["decay." + std::to_string(d)] = exact_text(decays_[d]);
  return fields;
}

void Ema::load_fields(const Fields& fields) {
  const int64_t updates = read_integer(fields, "updates", kWhat);
  for (size_t d = 0; d < decays_.size(); ++d)
    if (read_double(fields, "decay." + std::to_string(d), kWhat) != decays_[d])
      throw make_error(DDP_ERROR_MISMATCH, "the saved average %zu has another decay than %g", d, decays_[d]);
  updates_ = updates;
}

}  // namespace ddp
