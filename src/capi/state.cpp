// SPDX-License-Identifier: Apache-2.0
// ddp/state.h, ddp/keep.h and ddp/latest.h.
#include "checkpoint/state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "capi/state_tables.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/keep.hpp"
#include "core/attempt.hpp"
#include "core/callback.hpp"
#include "ddp/keep.h"
#include "ddp/latest.h"
#include "group/recovery.hpp"

using namespace ddp::capi;

namespace {

// The objects that a ddp_state names, kept alive for the call. Only a wrong model ends the call here: any other error is
// sent to all ranks (`refusal`), which would otherwise wait for this one.
struct Call {
  std::shared_ptr<ddp::model::Model> model;
  std::vector<std::shared_ptr<ddp::optim::Optimizer>> optimizers;
  std::shared_ptr<ddp::optim::Ema> ema;
  std::shared_ptr<ddp::outer::Outer> outer;
  std::optional<ddp::Error> refusal;
  ddp::checkpoint::Counters counters;
  ddp::checkpoint::LoadMode mode;

  [[nodiscard]] ddp::checkpoint::Parts parts() const {
    std::vector<ddp::model::ReplicaState*> all;
    for (const auto& each : optimizers) all.push_back(each.get());
    return {*model, ddp::checkpoint::Optimizers(std::move(all)), ema.get(), outer.get()};
  }
  template <class Body>
  void run(const char* function, Body&& body) const {
    or_first_cause(model->group(),
                   [&] { ddp::group::or_break(model->group(), ddp::group::call_if(!mode.local), function, body); });
  }
};

void add_optimizer(Call& call, const ddp_optimizer* handle, const char* function) {
  auto optimizer = object_of(handle, function);
  if (&optimizer->model() != call.model.get())
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the optimizer belongs to another model", function);
  if (std::find(call.optimizers.begin(), call.optimizers.end(), optimizer) != call.optimizers.end())
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: optimizers has an optimizer twice", function);
  call.optimizers.push_back(std::move(optimizer));
}

void resolve_optimizers(Call& call, const ddp_state& state, const char* function) {
  if (state.optimizer_count < 0 || (state.optimizer_count > 0) != (state.optimizers != nullptr))
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT,
                          "%s: optimizer_count is %lld and optimizers is %s; they are a list of 1 or more, or 0 and NULL",
                          function, static_cast<long long>(state.optimizer_count),
                          state.optimizers == nullptr ? "NULL" : "not NULL");
  if (state.optimizer != nullptr && state.optimizers != nullptr)
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: optimizer and optimizers are both set; set one of them",
                          function);
  if (state.optimizer != nullptr) add_optimizer(call, state.optimizer, function);
  for (int64_t k = 0; k < state.optimizer_count; ++k) add_optimizer(call, state.optimizers[k], function);
}

void resolve_others(Call& call, const ddp_state& state, const char* function) {
  resolve_optimizers(call, state, function);
  if (state.ema != nullptr) call.ema = object_of(state.ema, function);
  if (state.outer != nullptr) call.outer = object_of(state.outer, function);
  if (call.ema != nullptr && &call.ema->model() != call.model.get())
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the averages belong to another model", function);
  if (call.outer != nullptr && &call.outer->model() != call.model.get())
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the outer optimizer belongs to another model", function);
}

/// `needed` is what rank 0 must pass as `argument`; the other ranks may leave it out.
Call resolve_call(const ddp_state* given, bool needed, const char* function, const char* argument,
                  const ddp_load_options* options = nullptr, const ddp_load_report* out_report = nullptr) {
  require(given, function, "state");
  const ddp_state state = read_options(given, ddp_state{}, function);
  const ddp_load_options mode = read_options(options, ddp_load_options{}, function);
  if (out_report != nullptr) check_struct_size(out_report->struct_size, function);
  Call call;
  call.model = model_of(state.model, function);
  require_outside_program(call.model->group(), function);
  call.counters = {state.epoch, state.step};
  call.mode = {mode.partial == 1, mode.local == 1};
  call.refusal = ddp::try_to([&] {
    resolve_others(call, state, function);
    if ((mode.partial & ~1) != 0 || (mode.local & ~1) != 0)
      throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: partial is %d and local %d; each is 0 or 1", function,
                            mode.partial, mode.local);
    if (!needed && (call.model->group().rank() == 0 || call.mode.local))
      throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is NULL on rank 0", function, argument);
  });
  return call;
}

/// The program's function that takes a checkpoint, for as long as the call lives.
ddp::checkpoint::PushFn pushing(const Call& call, ddp_write_fn fn, void* user_data) {
  return [&call, fn, user_data](const void* data, int64_t bytes) {
    const InProgram inside(call.model->group());
    return ddp::call_program("the writer", [&] { return fn(user_data, data, bytes); });
  };
}

void write_report(ddp_load_report* out_report, ddp::model::Model& model, const ddp::checkpoint::Counters& counters,
                  const char* function) {
  if (out_report == nullptr) return;
  ddp_load_report report{};
  report.epoch = counters.epoch;
  report.step = counters.step;
  report.missing = static_cast<int64_t>(model.checkpoint_info().last_load.missing.size());
  report.unexpected = static_cast<int64_t>(model.checkpoint_info().last_load.unexpected.size());
  report.skipped = static_cast<int64_t>(model.checkpoint_info().last_load.skipped.size());
  fill_sized(out_report, report, function);
}

void check_key(const char* key, const char* function) {
  require(key, function, "key");
  const size_t length = std::strlen(key);
  if (length < 1 || length > 256)
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the key has %zu bytes; 1 to 256 are possible", function, length);
  if (!ddp::checkpoint::is_utf8(key))
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the key is not UTF-8", function);
}

/// Of an array whose elements have the size that the first one tells.
const ddp_state* state_at(const ddp_state* states, int32_t k) noexcept {
  return reinterpret_cast<const ddp_state*>(reinterpret_cast<const std::byte*>(states) + k * states->struct_size);
}

void require_one_group(const std::vector<ddp::model::Model*>& models, const char* function) {
  if (&models.back()->group() != &models.front()->group())
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the models are of different groups", function);
  if (std::count(models.begin(), models.end(), models.back()) > 1)
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: a model is named twice", function);
}

std::string own_bytes(const ddp_state& given, const char* function) {
  const ddp_state state = read_options(&given, ddp_state{}, function);
  if (state.own_bytes < 0 || state.own_bytes > ddp::checkpoint::kMostOwnBytes ||
      (state.own_bytes > 0 && state.own == nullptr))
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: own_bytes is %lld; 0 to 65,536 bytes at own can be kept",
                          function, static_cast<long long>(state.own_bytes));
  return {static_cast<const char*>(state.own), static_cast<size_t>(state.own_bytes)};
}

const char* name_at(const std::vector<std::string>& names, int64_t index) noexcept {
  return index >= 0 && index < static_cast<int64_t>(names.size()) ? names[static_cast<size_t>(index)].c_str() : nullptr;
}

}  // namespace

ddp_status ddp_state_init(ddp_state* state, int64_t struct_size) {
  return guarded([&] {
    require(state, "ddp_state_init", "state");
    init_options(state, struct_size, ddp_state{}, "ddp_state_init");
  });
}

ddp_status ddp_load_options_init(ddp_load_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, ddp_load_options{}, "ddp_load_options_init"); });
}

ddp_status ddp_model_set_metadata(ddp_model* model, const char* key, const char* value) {
  constexpr const char* kName = "ddp_model_set_metadata";
  return guarded([&] {
    const auto object = model_of(model, kName);
    check_key(key, kName);
    if (value == nullptr) {
      object->checkpoint_info().metadata.erase(key);
      return;
    }
    if (!ddp::checkpoint::is_utf8(value))
      throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the value of \"%s\" is not UTF-8", kName, key);
    object->checkpoint_info().metadata[key] = value;
  });
}

ddp_status ddp_model_get_metadata(const ddp_model* model, const char* key, const char** out_value) {
  constexpr const char* kName = "ddp_model_get_metadata";
  return guarded([&] {
    const auto object = model_of(model, kName);
    check_key(key, kName);
    require(out_value, kName, "out_value");
    const auto& metadata = object->checkpoint_info().metadata;
    const auto found = metadata.find(key);
    *out_value = found == metadata.end() ? nullptr : found->second.c_str();
  });
}

const char* ddp_model_get_missing(const ddp_model* model, int64_t index) {
  return guarded_value<const char*>(nullptr, [&] {
    const auto object = model_of(model, "ddp_model_get_missing");
    return name_at(object->checkpoint_info().last_load.missing, index);
  });
}

const char* ddp_model_get_unexpected(const ddp_model* model, int64_t index) {
  return guarded_value<const char*>(nullptr, [&] {
    const auto object = model_of(model, "ddp_model_get_unexpected");
    return name_at(object->checkpoint_info().last_load.unexpected, index);
  });
}

const char* ddp_model_get_skipped(const ddp_model* model, int64_t index) {
  return guarded_value<const char*>(nullptr, [&] {
    const auto object = model_of(model, "ddp_model_get_skipped");
    return name_at(object->checkpoint_info().last_load.skipped, index);
  });
}

const char* ddp_model_get_loaded_file(const ddp_model* model) {
  return guarded_value<const char*>(nullptr, [&]() -> const char* {
    const auto object = model_of(model, "ddp_model_get_loaded_file");
    const auto& file = object->checkpoint_info().last_load.file;
    return file ? file->c_str() : nullptr;
  });
}

ddp_status ddp_state_save_file(const ddp_state* state, const char* path) {
  constexpr const char* kName = "ddp_state_save_file";
  return guarded(kName, [&] {
    const Call call = resolve_call(state, path != nullptr, kName, "path");
    call.run(kName, [&] {
      ddp::checkpoint::save_file(kName, call.parts(), call.counters, path != nullptr ? path : "", call.refusal);
    });
  });
}

ddp_status ddp_state_load_file(const ddp_state* state, const char* path, const ddp_load_options* options,
                               ddp_load_report* out_report) {
  constexpr const char* kName = "ddp_state_load_file";
  return guarded(kName, [&] {
    const Call call = resolve_call(state, path != nullptr, kName, "path", options, out_report);
    call.run(kName, [&] {
      const auto counters =
          ddp::checkpoint::load_file(kName, call.parts(), path != nullptr ? path : "", call.refusal, call.mode);
      write_report(out_report, *call.model, counters, kName);
    });
  });
}

ddp_status ddp_state_save_latest(const ddp_state* state, const char* folder, int64_t keep) {
  constexpr const char* kName = "ddp_state_save_latest";
  return guarded(kName, [&] {
    Call call = resolve_call(state, folder != nullptr, kName, "folder");
    if (!call.refusal && call.model->group().rank() == 0 && (keep < 0 || call.counters.step < 0))
      call.refusal = ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: keep is %lld and step %lld; both are 0 or more", kName,
                                     static_cast<long long>(keep), static_cast<long long>(call.counters.step));
    call.run(kName, [&] {
      ddp::checkpoint::save_latest(kName, call.parts(), call.counters, folder != nullptr ? folder : "", keep, call.refusal);
    });
  });
}

ddp_status ddp_state_load_latest(const ddp_state* state, const char* folder, const ddp_load_options* options,
                                 ddp_load_report* out_report) {
  constexpr const char* kName = "ddp_state_load_latest";
  return guarded(kName, [&] {
    const Call call = resolve_call(state, folder != nullptr, kName, "folder", options, out_report);
    call.run(kName, [&] {
      const auto counters =
          ddp::checkpoint::load_latest(kName, call.parts(), folder != nullptr ? folder : "", call.refusal, call.mode);
      write_report(out_report, *call.model, counters, kName);
    });
  });
}

ddp_status ddp_state_save(const ddp_state* state, ddp_write_fn fn, void* user_data) {
  constexpr const char* kName = "ddp_state_save";
  return guarded(kName, [&] {
    const Call call = resolve_call(state, fn != nullptr, kName, "fn");
    call.run(kName, [&] {
      ddp::checkpoint::save_stream(kName, call.parts(), call.counters, pushing(call, fn, user_data), call.refusal);
    });
  });
}

ddp_status ddp_state_save_local(const ddp_state* state, ddp_write_fn fn, void* user_data) {
  constexpr const char* kName = "ddp_state_save_local";
  return guarded([&] {
    const Call call = resolve_call(state, true, kName, "fn");
    if (call.refusal) throw *call.refusal;
    if (fn == nullptr) throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: fn is NULL", kName);
    or_first_cause(call.model->group(),
                   [&] { ddp::checkpoint::save_local(kName, call.parts(), call.counters, pushing(call, fn, user_data)); });
  });
}

ddp_status ddp_state_load(const ddp_state* state, ddp_read_fn fn, void* user_data, const ddp_load_options* options,
                          ddp_load_report* out_report) {
  constexpr const char* kName = "ddp_state_load";
  return guarded(kName, [&] {
    const Call call = resolve_call(state, fn != nullptr, kName, "fn", options, out_report);
    const auto pull = [&](void* data, int64_t capacity) {
      const InProgram inside(call.model->group());
      return ddp::call_program("the reader", [&] { return fn(user_data, data, capacity); });
    };
    call.run(kName, [&] {
      const auto counters = ddp::checkpoint::load_stream(kName, call.parts(), pull, call.refusal, call.mode);
      write_report(out_report, *call.model, counters, kName);
    });
  });
}

ddp_status ddp_state_keep(const ddp_state* states, int32_t count, void* stream) {
  constexpr const char* kName = "ddp_state_keep";
  return guarded(kName, [&] {
    require(states, kName, "states");
    if (count < 1) throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: count is %d; it is 1 or more", kName, count);
    std::vector<Call> calls;
    std::vector<ddp::model::Model*> models;
    std::optional<ddp::Error> refusal;
    for (int32_t k = 0; k < count; ++k) {
      calls.push_back(resolve_call(state_at(states, k), true, kName, "states"));
      models.push_back(calls.back().model.get());
      if (!refusal) refusal = calls.back().refusal;
      require_one_group(models, kName);
    }
    const Call& first = calls.front();
    std::string own;
    if (!refusal) refusal = ddp::try_to([&] { own = own_bytes(*states, kName); });
    first.run(kName, [&] { ddp::checkpoint::keep(kName, models, first.counters, std::move(own), stream, refusal); });
  });
}

ddp_status ddp_group_get_kept(const ddp_group* group, void* data, int64_t capacity, int64_t* out_bytes) {
  constexpr const char* kName = "ddp_group_get_kept";
  return guarded([&] {
    const auto object = group_of(group, kName);
    require(out_bytes, kName, "out_bytes");
    if (capacity < 0 || (capacity > 0 && data == nullptr))
      throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: capacity is %lld; it is the number of bytes of data, or 0",
                            kName, static_cast<long long>(capacity));
    ddp::group::Survival* const survival = ddp::group::Recovery::survival(*object);
    const std::string_view kept = survival == nullptr ? std::string_view() : survival->keeper().bytes();
    std::copy_n(kept.data(), std::min(static_cast<size_t>(capacity), kept.size()), static_cast<char*>(data));
    *out_bytes = static_cast<int64_t>(kept.size());
  });
}
