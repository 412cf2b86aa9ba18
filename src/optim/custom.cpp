// SPDX-License-Identifier: Apache-2.0
#include "optim/custom.hpp"

#include <algorithm>
#include <cstring>

#include "core/attempt.hpp"
#include "core/callback.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/master_copies.hpp"
#include "optim/rules.hpp"
#include "os/log.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t kRoom = 2048;  // elements: the copies stay in cache

/// "a, b" as {"a", "b"}.
std::vector<std::string> names_in(const char* list) {
  std::vector<std::string> names;
  if (list == nullptr || *list == '\0') return names;
  names.emplace_back();
  for (; *list != '\0'; ++list) {
    if (*list == ',')
      names.emplace_back();
    else if (*list != ' ' || !names.back().empty())
      names.back() += *list;
  }
  return names;
}

bool is_name(const std::string& text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), fits);
}

void check_names(const std::vector<std::string>& names, const char* where) {
  if (names.size() > DDP_MAX_STATES)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: state_names has %zu names; at most %d are possible", where,
                     names.size(), DDP_MAX_STATES);
  for (size_t k = 0; k < names.size(); ++k) {
    if (!is_name(names[k]) || names[k] == "master")
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "%s: state_names has the name \"%s\"; letters, digits and underlines are possible, up to 64 of them, "
                       "but not \"master\"",
                       where, names[k].c_str());
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(k), names[k]) !=
        names.begin() + static_cast<std::ptrdiff_t>(k))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: state_names has \"%s\" twice", where, names[k].c_str());
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += text.empty() ? name : "," + name;
  return text;
}

}  // namespace

UserData::~UserData() {
  if (release_ == nullptr) return;
  const NoCancellation whole;
  const auto release = [this] { call_program("the function that releases user_data", [this] { release_(data_); }); };
  if (const std::optional<Error> error = try_to(release)) os::log_of(*error, DDP_LOG_WARNING, "%s", error->what());
}

ddp_custom_options default_custom_options() noexcept {
  ddp_custom_options options{};
  options.struct_size = sizeof options;
  return options;
}

CustomRule::CustomRule(const ddp_custom_options& options, const char* state_names, const char* where)
    : rate(options.rate),
      weight_decay(options.weight_decay),
      whole_tensors(options.whole_tensors == 1),
      states(names_in(state_names)) {
  check_not_negative(rate, where, "rate");
  check_not_negative(weight_decay, where, "weight_decay");
  if (options.whole_tensors != 0 && options.whole_tensors != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: whole_tensors is %d; 0 and 1 are possible", where,
                     options.whole_tensors);
  if (options.reserved != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: reserved is %d; it must be 0", where, options.reserved);
  check_names(states, where);
}

Custom::Custom(std::shared_ptr<model::Model> model, ddp_update_fn fn, const CustomRule& rule,
               const ddp_optimizer_options& shared, UserData user_data)
    : Optimizer(std::move(model), ParamGroups(rule.rate, rule.weight_decay), shared, "custom"),
      fn_(fn),
      rule_(rule),
      user_data_(std::move(user_data)),
      states_(rule.states.size()),
      noted_(*this) {}

std::map<std::string, std::string> Custom::state_fields() const {
  Fields fields = common_fields();
  fields["state_names"] = joined(rule_.states);
  return fields;
}

void Custom::load_fields(const std::map<std::string, std::string>& fields) {
  Common common = read_common(fields);
  const auto names = fields.find("state_names");
  const std::string saved = names == fields.end() ? "" : names->second;
  if (saved != joined(rule_.states))
    throw make_error(DDP_ERROR_MISMATCH,
                     "the checkpoint is of a rule with the state arrays \"%.200s\", but this one has \"%s\"", saved.c_str(),
                     joined(rule_.states).c_str());
  set_common(std::move(common));
}

bool Custom::is_copied(const Parameter& parameter) const noexcept {
  if (!device::of(parameter.value).is_immediate()) return false;
  return Masters::has(parameter) || policy().max_norm > 0 || policy().clip_value > 0 || loss_scale() != 1;
}

void Custom::prepare_rule() {
  failure_.reset();
  if (!home().is_immediate()) require_plain();
  int64_t wanted = 0;
  for (int32_t index = 0; index < model().table().parameter_count(); ++index)
    if (const Parameter& parameter = model().table().parameter(index); parameters().has(index) && is_copied(parameter))
      wanted = std::max(wanted, rule_.whole_tensors ? parameter.value.count : kRoom);
  if (wanted <= room_) return;
  values_ = os::LargeArray(static_cast<size_t>(wanted * dtype_size(DDP_F32)), "values for the rule of an optimizer");
  grads_ = os::LargeArray(static_cast<size_t>(wanted * dtype_size(DDP_F64)), "gradients for the rule of an optimizer");
  room_ = wanted;
}

void Custom::require_plain() const {
  const char* what = nullptr;
  if (policy().max_norm > 0) what = "max_norm";
  if (policy().clip_value > 0) what = "clip_value";
  if (policy().master_weights) what = "master_weights";
  if (loss_scale() != 1) what = "a loss scale";
  if (policy().shard && rule_.whole_tensors) what = "shard with whole_tensors";
  if (what != nullptr)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "a rule of the program gets parameters on a GPU as they are, so %s is not possible there; do it in the "
                     "rule, or use ddp_model_clip_grad_norm "
                     "and ddp_model_scale_grad before the step",
                     what);
}

void Custom::update(const Block& block, const device::GradShape& shape) {
  if (failure_) return;
  if (!device::of(block.parameter->value).is_immediate()) return noted_.add(block);
  if (block.master != nullptr) return update_master(block, shape);
  const cpu::GradShape change{shape.scale, shape.limit};
  if (block.dtype == cpu::moment_dtype(block.dtype) && !change.changes()) return call(block, nullptr);
  update_copied(block, change);
}

void Custom::update_master(const Block& block, const device::GradShape& shape) {
  const auto rule = [&](float* value, const float* grad, int64_t at, int64_t count) {
    update(Block{block.index, block.parameter, block.first + at, count, DDP_F32, value, grad}, shape);
  };
  if (!rule_.whole_tensors)
    return cpu::update_masters(block.dtype, block.value, block.grad, block.master, block.count, rule);
  auto* const gradient = reinterpret_cast<float*>(values_.data());  // shaped, it goes to the other copy
  cpu::refresh_copy(block.dtype, block.value, block.master, block.count);
  cpu::widen(block.dtype, block.grad, gradient, block.count);
  rule(block.master, gradient, 0, block.count);
  cpu::narrow(block.dtype, block.master, block.value, block.count);
}

void Custom::update_copied(const Block& block, const cpu::GradShape& shape) {
  const ddp_dtype dtype = cpu::moment_dtype(block.dtype);
  const int64_t element = dtype_size(block.dtype);
  for (int64_t at = 0; at < block.count && !failure_; at += room_) {
    Block part = block;
    part.first = block.first + at;
    part.count = std::min(room_, block.count - at);
    std::byte* const value = static_cast<std::byte*>(block.value) + at * element;
    const std::byte* const grad = static_cast<const std::byte*>(block.grad) + at * element;
    part.dtype = dtype;
    part.value = value;
    part.grad = grads_.data();
    if (block.dtype == dtype) {
      std::memcpy(grads_.data(), grad, static_cast<size_t>(part.count * element));
    } else {
      cpu::convert(block.dtype, grad, dtype, grads_.data(), part.count);
      cpu::convert(block.dtype, value, dtype, values_.data(), part.count);
      part.value = values_.data();
    }
    if (shape.changes()) {
      cpu::scale(dtype, grads_.data(), part.count, shape.scale);
      cpu::limit(dtype, grads_.data(), part.count, shape.limit);
    }
    call(part, nullptr);
    if (block.dtype != dtype && !failure_) cpu::convert(dtype, values_.data(), block.dtype, value, part.count);
  }
}

void Custom::call(const Block& block, void* stream) {
  const Parameter& parameter = *block.parameter;
  ddp_update_slice slice{};
  for (size_t k = 0; k < rule_.states.size(); ++k) slice.state[k] = states_.at(parameter, block.index, k, block.first);
  slice.struct_size = sizeof slice;
  slice.index = block.index;
  slice.dtype = block.dtype;
  slice.value = block.value;
  slice.grad = block.grad;
  slice.state_count = static_cast<int32_t>(rule_.states.size());
  const ddp_tensor lent = to_c(parameter.value);
  slice.device = lent.device;
  slice.device_index = lent.device_index;
  slice.first = block.first;
  slice.count = block.count;
  slice.step = schedule().steps_of(block.index) + 1;
  slice.rate = schedule().rate_of(block.index);
  slice.weight_decay = schedule().weight_decay_of(block.index);
  slice.stream = stream;
  failure_ = try_to([&] {
    const int32_t status = call_program([&] { return "the update of parameter \"" + parameter.name + "\""; },
                                        [&] { return fn_(user_data_.get(), &slice); });
    if (status != 0)
      throw make_error(DDP_ERROR_CALLBACK, "the update of parameter \"%s\" (index %d, elements %lld to %lld) returned %d",
                       parameter.name.c_str(), block.index, static_cast<long long>(block.first),
                       static_cast<long long>(block.first + block.count - 1), status);
  });
}

void Custom::Noted::launch(const device::Device& device, const device::GradShape&, const device::Order& order) {
  device.within([&] {
    for (const Block& block : blocks_)
      if (!owner_.failure_) owner_.call(block, order.stream);
  });
  blocks_.clear();
}

}  // namespace ddp::optim
