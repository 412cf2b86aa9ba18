// SPDX-License-Identifier: Apache-2.0
// ddp/hook.h. A bucket's handle is made when a hook first sees it and is destroyed with the model; the bucket itself knows
// whether it is in a hook.
#include "ddp/hook.h"

#include "capi/hook.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "core/callback.hpp"
#include "extra/powersgd.hpp"
#include "model/pulled.hpp"
#include "optim/custom.hpp"
#include "parts/hooks/hook_bucket.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

/// The caller's function as a hook of a model of this group.
parts::Hook callback_hook(const group::Group& group, ddp_hook_fn fn, optim::UserData user_data) {
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kCallback;
  hook.name = "a callback";
  hook.body = [&group, fn, data = std::make_shared<optim::UserData>(std::move(user_data))](parts::HookBucket& bucket) {
    ddp_bucket* const handle = handle_of(bucket);
    const InProgram inside(group);
    const int32_t status = call_program("it", [&] { return fn(data->get(), handle); });
    if (status == 0) return;
    std::string text = bucket.take_error();
    if (text.empty()) text = "it returned " + std::to_string(status);
    throw Error(DDP_ERROR_CALLBACK, text);
  };
  return hook;
}

ddp_powersgd_options read_powersgd(const void* user_data, const char* function) {
  const auto* given = static_cast<const ddp_powersgd_options*>(user_data);
  const ddp_powersgd_options options = read_options(given, extra::default_powersgd_options(), function);
  extra::check_powersgd_options(options, function);
  return options;
}

parts::Hook hook_of(const group::Group& group, ddp_hook_fn fn, optim::UserData user_data) {
  if (fn == nullptr) return parts::Hook{};
  if (fn == &ddp_hook_powersgd) return extra::powersgd_hook(read_powersgd(user_data.get(), "ddp_model_set_hook"));
  return callback_hook(group, fn, std::move(user_data));
}

void check_position(const parts::HookBucket& bucket, int32_t position, const char* function) {
  const auto count = static_cast<int32_t>(bucket.pieces().size());
  if (position < 0 || position >= count)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: position is %d; the bucket has %d parameters, counted from 0",
                     function, position, count);
}

}  // namespace

ddp_bucket* ddp::capi::handle_of(parts::HookBucket& bucket) {
  struct Handle {
    ddp_bucket* value;
    explicit Handle(ddp_bucket* made) : value(made) {}
    ~Handle() { (void)BucketTable::instance().remove(value); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
  };
  if (bucket.handle == nullptr)
    bucket.handle = std::make_shared<Handle>(BucketTable::instance().add(bucket.shared_from_this()));
  return static_cast<Handle*>(bucket.handle.get())->value;
}

ddp_status ddp_model_set_hook(ddp_model* model, ddp_hook_fn fn, void* user_data, ddp_release_fn release) {
  return guarded([&] {
    optim::UserData owned(user_data, release);  // first, so that it is released whatever fails
    const auto object = model_of(model, "ddp_model_set_hook");
    or_first_cause(object->group(), [&] { object->set_hook(hook_of(object->group(), fn, std::move(owned))); });
  });
}

int32_t ddp_hook_powersgd(void* user_data, ddp_bucket* bucket) {
  return guarded([&] {
    const auto object = bucket_of(bucket, "ddp_hook_powersgd");
    extra::reduce_by_powersgd(*object, read_powersgd(user_data, "ddp_hook_powersgd"));
  });
}

ddp_status ddp_powersgd_options_init(ddp_powersgd_options* options, int64_t struct_size) {
  return guarded(
      [&] { init_options(options, struct_size, extra::default_powersgd_options(), "ddp_powersgd_options_init"); });
}

ddp_status ddp_model_set_pulled_hook(ddp_model* model) {
  return run_local(model, "ddp_model_set_pulled_hook", [](model::Model& object) {
    parts::Hook hook;
    hook.kind = parts::Hook::Kind::kPulled;
    hook.name = "pulled";
    object.set_hook(std::move(hook));
  });
}

ddp_status ddp_model_next_bucket(ddp_model* model, int32_t rest, ddp_bucket** out_bucket) {
  return run_collective(model, "ddp_model_next_bucket", [&](model::Model& object) {
    require(out_bucket, "ddp_model_next_bucket", "out_bucket");
    if (rest != 0 && rest != 1)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_next_bucket: rest is %d; it is 0 or 1", rest);
    const auto bucket = model::next_bucket(object, rest == 1);
    *out_bucket = bucket != nullptr ? handle_of(*bucket) : nullptr;
  });
}

ddp_status ddp_model_finish_bucket(ddp_model* model, int32_t status, const char* text) {
  return run_collective(model, "ddp_model_finish_bucket", [&](model::Model& object) {
    std::optional<Error> problem;
    if (status != 0) problem = Error(DDP_ERROR_CALLBACK, text != nullptr ? std::string(text) : std::string());
    model::finish_bucket(object, problem);
  });
}

int32_t ddp_bucket_get_index(const ddp_bucket* bucket) {
  return guarded_value<int32_t>(-1, [&] { return bucket_of(bucket, "ddp_bucket_get_index")->index(); });
}

int32_t ddp_bucket_is_last(const ddp_bucket* bucket) {
  return guarded_value<int32_t>(-1, [&] { return bucket_of(bucket, "ddp_bucket_is_last")->is_last() ? 1 : 0; });
}

ddp_status ddp_bucket_get_contents(const ddp_bucket* bucket, ddp_tensor* out_contents) {
  return guarded([&] {
    const auto object = bucket_of(bucket, "ddp_bucket_get_contents");
    require(out_contents, "ddp_bucket_get_contents", "out_contents");
    *out_contents = to_c(object->contents());
  });
}

int32_t ddp_bucket_get_parameter_count(const ddp_bucket* bucket) {
  return guarded_value<int32_t>(
      -1, [&] { return static_cast<int32_t>(bucket_of(bucket, "ddp_bucket_get_parameter_count")->pieces().size()); });
}

ddp_status ddp_bucket_get_parameter(const ddp_bucket* bucket, int32_t position, int32_t* out_index, ddp_tensor* out_grad) {
  return guarded([&] {
    const auto object = bucket_of(bucket, "ddp_bucket_get_parameter");
    check_position(*object, position, "ddp_bucket_get_parameter");
    const parts::HookBucket::Piece& piece = object->pieces()[static_cast<size_t>(position)];
    if (out_index != nullptr) *out_index = piece.parameter;
    if (out_grad == nullptr) return;
    Tensor grad = piece.shape;
    grad.data = object->contents().data + piece.offset * dtype_size(grad.dtype);
    *out_grad = to_c(grad);
  });
}

int32_t ddp_bucket_is_used(const ddp_bucket* bucket, int32_t position) {
  return guarded_value<int32_t>(-1, [&] {
    const auto object = bucket_of(bucket, "ddp_bucket_is_used");
    check_position(*object, position, "ddp_bucket_is_used");
    return object->is_used(static_cast<size_t>(position)) ? 1 : 0;
  });
}

ddp_status ddp_bucket_get_group(ddp_bucket* bucket, ddp_group** out_group) {
  return guarded([&] {
    (void)bucket_of(bucket, "ddp_bucket_get_group");
    require(out_group, "ddp_bucket_get_group", "out_group");
    *out_group = reinterpret_cast<ddp_group*>(bucket);
  });
}

ddp_status ddp_bucket_set_error(ddp_bucket* bucket, const char* text) {
  return guarded([&] {
    const auto object = bucket_of(bucket, "ddp_bucket_set_error");
    require(text, "ddp_bucket_set_error", "text");
    object->set_error(text);
  });
}
