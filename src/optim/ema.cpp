#include "optim/ema.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/update_kernels.hpp"
#include "optim/fields.hpp"

namespace ddp::optim {
namespace {

constexpr size_t kMaxDecays = 16;

void check_decays(const std::vector<double>& decays) {
  if (decays.empty() || decays.size() > kMaxDecays)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: count is %zu; 1 to %zu decays are possible", decays.size(),
                     kMaxDecays);
  for (size_t k = 0; k < decays.size(); ++k) {
    if (!(decays[k] >= 0 && decays[k] < 1))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_create: decays[%zu] is %g; it must be 0 or more and below 1", k,
                       decays[k]);
    const auto before = std::find(decays.begin(), decays.begin() + static_cast<std::ptrdiff_t>(k), decays[k]);
    if (before - decays.begin() < static_cast<std::ptrdiff_t>(k))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "ddp_ema_create: decays[%zu] and decays[%zu] are both %g; they must differ",
                       static_cast<size_t>(before - decays.begin()), k, decays[k]);
  }
}

/// 16-bit parameters have averages of another type.
bool is_exchanged(const Parameter& parameter) noexcept {
  return cpu::moment_dtype(parameter.value.dtype) == parameter.value.dtype;
}

void exchange(std::byte* a, std::byte* b, size_t bytes) noexcept {
  std::array<std::byte, 4096> held;
  for (size_t at = 0; at < bytes; at += held.size()) {
    const size_t now = std::min(held.size(), bytes - at);
    std::memcpy(held.data(), a + at, now);
    std::memcpy(a + at, b + at, now);
    std::memcpy(b + at, held.data(), now);
  }
}

/// As many bytes as the parameter has, where it lies.
void copy_bytes(std::byte* to, const Tensor& value, const std::byte* from, void* stream) {
  if (value.gpu != nullptr)
    value.gpu->copy(to, from, value.bytes(), stream);
  else
    std::copy_n(from, value.bytes(), to);
}

}  // namespace

Ema::Ema(std::shared_ptr<model::Model> model, std::vector<double> decays)
    : model_(std::move(model)), decays_(std::move(decays)), averages_(decays_.size()) {
  check_decays(decays_);
}

/// The parameters keep what they hold.
Ema::~Ema() {
  if (model_->values_of() == this) model_->set_values_of(nullptr);
}

void Ema::refuse_capture(const char* function, void* stream) const {
  if (device() != nullptr) device()->refuse_capture(stream, function, "what it does depends on what was called before");
}

void Ema::update(void* stream) {
  model_->require_ready("ddp_ema_update");
  if (swapped_ >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_ema_update: the parameters hold average %d; swap it back first with ddp_ema_swap", swapped_);
  model_->require_own_values("ddp_ema_update");
  refuse_capture("ddp_ema_update", stream);
  averages_.allocate(model_->table());
  updates_ == 0 ? start(stream) : follow(stream);
  ++updates_;
}

void Ema::start(void* stream) {
  spans_.clear();
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Tensor& value = model_->table().parameter(i).value;
    for (size_t k = 0; k < decays_.size(); ++k)
      if (value.is_on_gpu())
        spans_.add(value.dtype, cpu::moment_dtype(value.dtype), value.data, averages_.data(i, k), value.count);
      else
        cpu::convert(value.dtype, value.data, cpu::moment_dtype(value.dtype), averages_.data(i, k), value.count);
  }
  if (device() != nullptr) spans_.copy(*device(), stream, "starting averages");
}

void Ema::follow(void* stream) {
  if (device() != nullptr) follow_on_gpu(stream);
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Tensor& value = model_->table().parameter(i).value;
    if (value.is_on_gpu()) continue;
    std::array<void*, kMaxDecays> places{};
    for (size_t k = 0; k < decays_.size(); ++k) places[k] = averages_.data(i, k);
    cpu::ema_update(decays_.data(), static_cast<int32_t>(decays_.size()), value.dtype, value.data, places.data(),
                    value.count);
  }
}

void Ema::follow_on_gpu(void* stream) {
  const gpu::Device::Current current(*device());
  const ddp_gpu_stop stop = model_->group().gpu_stop(stream);
  for (size_t k = 0; k < decays_.size(); ++k) {
    spans_.clear();
    for (int32_t i = 0; i < model_->table().parameter_count(); ++i)
      if (const Tensor& value = model_->table().parameter(i).value; value.is_on_gpu())
        spans_.add(value.dtype, cpu::moment_dtype(value.dtype), value.data, averages_.data(i, k), value.count);
    spans_.each([&](const ddp_gpu_span* spans, int64_t count, ddp_dtype dtype, ddp_dtype) {
      device()->check(device()->table().ema(spans, count, dtype, decays_[k], stop, stream), "updating averages");
    });
  }
}

void Ema::swap(int32_t which, void* stream) {
  if (which < 0 || static_cast<size_t>(which) >= decays_.size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_ema_swap: which is %d; there are %zu averages, from 0 on", which,
                     decays_.size());
  model_->require_ready("ddp_ema_swap");
  if (updates_ == 0)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_ema_swap: there is no average yet; call ddp_ema_update first");
  if (swapped_ >= 0 && swapped_ != which)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_ema_swap: the parameters hold average %d, not %d; swap that one back first", swapped_, which);
  model_->require_own_values("ddp_ema_swap", this);
  refuse_capture("ddp_ema_swap", stream);
  swapped_ < 0 ? swap_in(which, stream) : swap_back(stream);
}

void Ema::swap_in(int32_t which, void* stream) {
  const std::vector<Parameter>& parameters = model_->table().parameters();
  std::vector<DeviceBuffer> saved(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!is_exchanged(parameters[i]))
      saved[i] =
          DeviceBuffer(parameters[i].value, parameters[i].value.bytes(), "a parameter while an average is swapped in");
  spans_.clear();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& value = parameters[i].value;
    if (is_exchanged(parameters[i])) continue;
    copy_bytes(saved[i].data(), value, value.data, stream);
    std::byte* const average = averages_.data(static_cast<int32_t>(i), static_cast<size_t>(which));
    if (value.is_on_gpu())
      spans_.add(cpu::moment_dtype(value.dtype), value.dtype, average, value.data, value.count);
    else
      cpu::convert(cpu::moment_dtype(value.dtype), average, value.dtype, value.data, value.count);
  }
  saved_ = std::move(saved);
  swapped_ = which;
  model_->set_values_of(this);
  if (device() != nullptr) spans_.copy(*device(), stream, "swapping an average in");
  exchange_values(which, stream);
}

void Ema::swap_back(void* stream) {
  for (size_t i = 0; i < model_->table().parameters().size(); ++i)
    if (const Parameter& parameter = model_->table().parameters()[i]; !is_exchanged(parameter))
      copy_bytes(parameter.value.data, parameter.value, saved_[i].data(), stream);
  exchange_values(swapped_, stream);
  saved_.clear();
  swapped_ = -1;
  model_->set_values_of(nullptr);
}

/// The parameters and averages of one type change places.
void Ema::exchange_values(int32_t which, void* stream) {
  spans_.clear();
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Parameter& parameter = model_->table().parameter(i);
    const Tensor& value = parameter.value;
    std::byte* const average = averages_.data(i, static_cast<size_t>(which));
    if (!is_exchanged(parameter)) continue;
    if (value.is_on_gpu())
      spans_.add(DDP_U8, DDP_U8, value.data, average, value.bytes());
    else
      exchange(value.data, average, static_cast<size_t>(value.bytes()));
  }
  if (device() == nullptr) return;
  const gpu::Device::Current current(*device());
  spans_.each([&](const ddp_gpu_span* spans, int64_t count, ddp_dtype, ddp_dtype) {
    device()->check(device()->table().exchange(spans, count, stream), "exchanging parameters and averages");
  });
}

std::vector<model::StateTensor> Ema::state_tensors() {
  if (swapped_ >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "the parameters hold average %d; swap it back with ddp_ema_swap before a checkpoint", swapped_);
  const Parameters& table = model_->table();
  averages_.allocate(table);
  std::vector<model::StateTensor> tensors;
  for (size_t k = 0; k < decays_.size(); ++k)
    for (int32_t i = 0; i < table.parameter_count(); ++i)
      tensors.push_back({number_text(decays_[k]) + "." + table.parameter(i).name, averages_.tensor(table, i, k)});
  return tensors;
}

std::map<std::string, std::string> Ema::state_fields() const { return {{"updates", std::to_string(updates_)}}; }

void Ema::load_fields(const std::map<std::string, std::string>& fields) { updates_ = read_count(fields, "updates"); }

/// What was written to the parameter before, in whatever stream, is in the average afterwards.
void Ema::begin_at_parameter(const std::string& name) {
  const std::vector<model::StateTensor> tensors = state_tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != name) continue;
    const Tensor& value = model_->table().parameters()[i % model_->table().parameters().size()].value;
    const Tensor& average = tensors[i].tensor;
    if (!value.is_on_gpu()) {
      cpu::convert(value.dtype, value.data, average.dtype, average.data, value.count);
      continue;
    }
    device()->synchronize();
    spans_.clear();
    spans_.add(value.dtype, average.dtype, value.data, average.data, value.count);
    spans_.copy(*device(), nullptr, "beginning an average");
    device()->synchronize(nullptr);
  }
}

}  // namespace ddp::optim
