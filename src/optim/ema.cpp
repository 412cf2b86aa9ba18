// SPDX-License-Identifier: Apache-2.0
#include "optim/ema.hpp"

#include <algorithm>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "device/cpu/update_kernels.hpp"
#include "group/gpu.hpp"
#include "optim/fields.hpp"

namespace ddp::optim {
namespace {

using Kind = device::Operation::Kind;

constexpr size_t kMaxDecays = device::kMostDecays;
constexpr device::Operation kExchange{Kind::kSwap, 1, "exchanging parameters and averages"};

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

}  // namespace

Ema::Ema(std::shared_ptr<model::Model> model, std::vector<double> decays)
    : model_(std::move(model)), decays_(std::move(decays)), averages_(decays_.size()) {
  check_decays(decays_);
}

/// The parameters keep what they hold.
Ema::~Ema() {
  if (model_->values().averages_of() == this) model_->values().set_averages_of(nullptr);
}

void Ema::refuse_capture(const char* function, void* stream) const {
  device::of(model_->table()).refuse_capture(stream, function, "what it does depends on what was called before");
}

void Ema::update(void* stream) {
  model_->require_ready("ddp_ema_update");
  if (swapped_ >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_ema_update: the parameters hold average %d; swap it back first with ddp_ema_swap", swapped_);
  model_->values().require_own("ddp_ema_update");
  refuse_capture("ddp_ema_update", stream);
  averages_.allocate(model_->table());
  updates_ == 0 ? start(stream) : follow(stream);
  ++updates_;
}

/// Each value with each of its averages; decays in their order, equal except for the average.
void Ema::list_averages() {
  spans_.clear();
  for (size_t k = 0; k < decays_.size(); ++k)
    for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
      const Tensor& value = model_->table().parameter(i).value;
      spans_.add(device::of(value), value.dtype, cpu::moment_dtype(value.dtype), value.data, averages_.data(i, k),
                 value.count);
    }
}

void Ema::start(void* stream) {
  list_averages();
  spans_.apply({Kind::kCopy, 1, "starting averages"}, {stream});
}

void Ema::follow(void* stream) {
  const bool is_immediate = device::of(model_->table()).is_immediate();
  const device::Order order{stream, is_immediate ? nullptr : model_->group().gpu().stop_step_on(stream)};
  list_averages();
  spans_.each([&](const device::Device& home, const device::Span* spans, int64_t count, ddp_dtype dtype, ddp_dtype) {
    home.follow(spans, count / std::ssize(decays_), decays_.data(), static_cast<int32_t>(decays_.size()), dtype, order);
  });
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
  model_->values().require_own("ddp_ema_swap", this);
  refuse_capture("ddp_ema_swap", stream);
  swapped_ < 0 ? swap_in(which, stream) : swap_back(stream);
}

/// What may fail for a lack of memory comes before the first change.
void Ema::swap_in(int32_t which, void* stream) {
  const std::vector<Parameter>& parameters = model_->table().parameters();
  std::vector<device::Memory> saved(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!is_exchanged(parameters[i]))
      saved[i] = device::Memory(device::of(parameters[i].value), parameters[i].value.bytes(),
                                "a parameter while an average is swapped in");
  list_exchanged(which);
  spans_.clear();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& value = parameters[i].value;
    if (is_exchanged(parameters[i])) continue;
    const device::Device& home = device::of(value);
    home.copy(saved[i].data(), value.data, value.bytes(), stream);
    std::byte* const average = averages_.data(static_cast<int32_t>(i), static_cast<size_t>(which));
    spans_.add(home, cpu::moment_dtype(value.dtype), value.dtype, average, value.data, value.count);
  }
  saved_ = std::move(saved);
  swapped_ = which;
  model_->values().set_averages_of(this);
  spans_.apply({Kind::kCopy, 1, "swapping an average in"}, {stream});
  exchanged_.apply(kExchange, {stream});
}

void Ema::swap_back(void* stream) {
  list_exchanged(swapped_);
  for (size_t i = 0; i < model_->table().parameters().size(); ++i)
    if (const Parameter& parameter = model_->table().parameters()[i]; !is_exchanged(parameter))
      device::of(parameter.value).copy(parameter.value.data, saved_[i].data(), parameter.value.bytes(), stream);
  exchanged_.apply(kExchange, {stream});
  saved_.clear();
  swapped_ = -1;
  model_->values().set_averages_of(nullptr);
}

void Ema::give_parameters_back() noexcept {
  if (swapped_ >= 0) static_cast<void>(try_to([this] { swap_back(nullptr); }));
}

/// The parameters and averages of one type, which change places.
void Ema::list_exchanged(int32_t which) {
  exchanged_.clear();
  for (int32_t i = 0; i < model_->table().parameter_count(); ++i) {
    const Parameter& parameter = model_->table().parameter(i);
    const Tensor& value = parameter.value;
    std::byte* const average = averages_.data(i, static_cast<size_t>(which));
    if (is_exchanged(parameter)) exchanged_.add(device::of(value), DDP_U8, DDP_U8, value.data, average, value.bytes());
  }
}

std::vector<model::StateTensor> Ema::state_tensors() {
  if (swapped_ >= 0)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "the parameters hold average %d; swap it back with ddp_ema_swap before a checkpoint", swapped_);
  const Parameters& table = model_->table();
  averages_.allocate(table);
  const std::vector<int32_t> present = table.present();
  std::vector<model::StateTensor> tensors;
  for (size_t k = 0; k < decays_.size(); ++k)
    for (const int32_t i : present)
      tensors.push_back({number_text(decays_[k]) + "." + table.parameter(i).name, averages_.tensor(table, i, k)});
  return tensors;
}

std::map<std::string, std::string> Ema::state_fields() const { return {{"updates", std::to_string(updates_)}}; }

void Ema::load_fields(const std::map<std::string, std::string>& fields) { updates_ = read_count(fields, "updates"); }

/// As the first update does it.
void Ema::begin_added(const std::vector<int32_t>& added, void* stream) {
  if (updates_ == 0) return;
  const Parameters& table = model_->table();
  averages_.allocate(table);
  spans_.clear();
  for (size_t k = 0; k < decays_.size(); ++k)
    for (const int32_t i : added) {
      const Tensor& value = table.parameter(i).value;
      spans_.add(device::of(value), value.dtype, cpu::moment_dtype(value.dtype), value.data, averages_.data(i, k),
                 value.count);
    }
  spans_.apply({Kind::kCopy, 1, "starting averages"}, {stream});
}

/// What was written to the parameter before, in whatever stream, is in the average afterwards.
void Ema::begin_at_parameter(const std::string& name) {
  const std::vector<model::StateTensor> tensors = state_tensors();
  const std::vector<int32_t> present = model_->table().present();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != name) continue;
    const Tensor& value = model_->table().parameter(present[i % present.size()]).value;
    const Tensor& average = tensors[i].tensor;
    const device::Device& home = device::of(value);
    home.synchronize();
    spans_.clear();
    spans_.add(home, value.dtype, average.dtype, value.data, average.data, value.count);
    spans_.apply({Kind::kCopy, 1, "beginning an average"}, {});
    home.synchronize(nullptr);
  }
}

}  // namespace ddp::optim
