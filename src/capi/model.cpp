// SPDX-License-Identifier: Apache-2.0
// ddp/model.h and ddp/buckets.h.
#include "ddp/model.h"

#include <cstring>

#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "capi/tensors.hpp"
#include "checkpoint/format.hpp"
#include "ddp/buckets.h"
#include "model/gradients.hpp"
#include "model/replicas.hpp"
#include "model/sync_buffers.hpp"
#include "parts/model_pass.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_model_options model_defaults() {
  ddp_model_options options{};
  options.first_bucket_bytes = 1 << 20;
  options.reduce = DDP_AVERAGE;
  options.unused = DDP_UNUSED_ERROR;
  options.progress = DDP_PROGRESS_AUTO;
  return options;
}

/// Names go into checkpoints, so what a checkpoint cannot hold is refused at once.
void check_name(const char* name, const char* function) {
  require(name, function, "name");
  if (!checkpoint::is_utf8(name)) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: the name is not UTF-8", function);
  if (std::strcmp(name, "__metadata__") == 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: the name \"__metadata__\" is reserved in checkpoints; choose another one", function);
}

/// Of ddp_model_add_array, which takes no tensor on a GPU.
Tensor host_array(const ddp_tensor& array, const std::string& what) {
  const Tensor checked = checked_tensor(&array, what.c_str());
  gpu::require_host(
      checked, what.c_str(),
      "ddp_model_add_array takes host memory; call ddp_model_add_parameter with a ddp_tensor that has device = "
      "DDP_CUDA and that device_index");
  return checked;
}

}  // namespace

ddp_status ddp_model_options_init(ddp_model_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, model_defaults(), "ddp_model_options_init"); });
}

ddp_status ddp_model_create(ddp_group* group, const ddp_model_options* options, ddp_model** out_model) {
  return guarded([&] {
    const auto object = group_of(group, "ddp_model_create");
    require(out_model, "ddp_model_create", "out_model");
    const ddp_model_options read = read_options(options, model_defaults(), "ddp_model_create");
    fence_broken_groups();
    *out_model = ModelTable::instance().add(std::make_shared<model::Model>(object, read));
  });
}

void ddp_model_destroy(ddp_model* model) {
  (void)guarded([&] {
    auto object = ModelTable::instance().get(model);
    const bool is_in_pass = object != nullptr && object->is_committed() && object->pass().is_open();
    if (object == nullptr || (is_in_pass && is_refused_in_program(object->group(), "ddp_model_destroy"))) return;
    object = ModelTable::instance().remove(model);
    if (object != nullptr) object->close();
  });
}

ddp_status ddp_model_add_parameter(ddp_model* model, const char* name, const ddp_tensor* value, const ddp_tensor* grad,
                                   int32_t* out_index) {
  return run_local(model, "ddp_model_add_parameter", [&](model::Model& object) {
    check_name(name, "ddp_model_add_parameter");
    const std::string what = std::string("parameter \"") + name + "\"";
    const Tensor checked = bound_tensor(object.group(), value, what.c_str());
    Tensor checked_grad;
    if (grad != nullptr) checked_grad = bound_tensor(object.group(), grad, ("the gradient of " + what).c_str());
    const int32_t index = object.add_parameter(name, checked, grad != nullptr ? &checked_grad : nullptr);
    if (out_index != nullptr) *out_index = index;
  });
}

ddp_status ddp_model_add_array(ddp_model* model, const char* name, float* data, float* grad, int64_t count,
                               int32_t* out_index) {
  return run_local(model, "ddp_model_add_array", [&](model::Model& object) {
    check_name(name, "ddp_model_add_array");
    const std::string what = std::string("parameter \"") + name + "\"";
    const ddp_tensor value = to_c(flat_tensor(data, DDP_F32, count)), gradient = to_c(flat_tensor(grad, DDP_F32, count));
    const Tensor checked = host_array(value, what);
    Tensor checked_grad;
    if (grad != nullptr) checked_grad = host_array(gradient, "the gradient of " + what);
    if (object.is_committed())  // what follows would name the other function
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_model_add_array: the model is committed; tensors are registered before ddp_model_commit");
    const int32_t index = object.add_parameter(name, checked, grad != nullptr ? &checked_grad : nullptr);
    if (out_index != nullptr) *out_index = index;
  });
}

ddp_status ddp_model_add_parameter_without_grad(ddp_model* model, const char* name, const ddp_tensor* value,
                                                int32_t* out_index) {
  constexpr const char* kName = "ddp_model_add_parameter_without_grad";
  return run_local(model, kName, [&](model::Model& object) {
    check_name(name, kName);
    const std::string what = std::string("parameter \"") + name + "\"";
    const int32_t index = object.add_parameter(name, bound_tensor(object.group(), value, what.c_str()), nullptr,
                                               model::Model::Gradient::kLater);
    if (out_index != nullptr) *out_index = index;
  });
}

ddp_status ddp_model_add_buffer(ddp_model* model, const char* name, const ddp_tensor* value, int32_t* out_index) {
  return run_local(model, "ddp_model_add_buffer", [&](model::Model& object) {
    check_name(name, "ddp_model_add_buffer");
    const int32_t index =
        object.add_buffer(name, bound_tensor(object.group(), value, (std::string("buffer \"") + name + "\"").c_str()));
    if (out_index != nullptr) *out_index = index;
  });
}

ddp_status ddp_model_commit(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_commit", [&](model::Model& object) { object.commit(stream); });
}

int32_t ddp_model_get_parameter_count(const ddp_model* model) {
  return guarded_value<int32_t>(-1,
                                [&] { return model_of(model, "ddp_model_get_parameter_count")->table().parameter_count(); });
}

ddp_status ddp_model_get_grad(const ddp_model* model, int32_t index, ddp_tensor* out_grad) {
  return run_local(model, "ddp_model_get_grad", [&](model::Model& object) {
    require(out_grad, "ddp_model_get_grad", "out_grad");
    check_index(object, index, "ddp_model_get_grad");
    const Parameter& parameter = object.table().parameter(index);
    if (parameter.owned_grad && !object.is_committed())
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_model_get_grad: libddp allocates the gradient of \"%s\" in ddp_model_commit",
                       parameter.name.c_str());
    if (parameter.awaits_grad())
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_model_get_grad: \"%s\" was added without a gradient and has none yet; call ddp_model_set_grad "
                       "first",
                       parameter.name.c_str());
    *out_grad = to_c(declared_view(parameter.grad, parameter.declared));
  });
}

ddp_status ddp_model_get_value(const ddp_model* model, int32_t index, ddp_tensor* out_value) {
  return guarded([&] {
    const auto object = model_of(model, "ddp_model_get_value");
    require(out_value, "ddp_model_get_value", "out_value");
    check_index(*object, index, "ddp_model_get_value");
    const Parameter& parameter = object->table().parameter(index);
    *out_value = to_c(declared_view(parameter.value, parameter.declared));
  });
}

ddp_status ddp_model_set_grad(ddp_model* model, int32_t index, const ddp_tensor* grad) {
  return run_local(model, "ddp_model_set_grad", [&](model::Model& object) {
    check_index(object, index, "ddp_model_set_grad");
    const Parameter& parameter = object.table().parameter(index);
    if (grad == nullptr && parameter.stand_in != nullptr) return object.gradients().set(index, nullptr);
    const Tensor given = checked_any_tensor(grad, ("the gradient of parameter \"" + parameter.name + "\"").c_str());
    object.gradients().set(index, &given);
  });
}

ddp_status ddp_model_set_buckets(ddp_model* model, const int32_t* numbers, int32_t count) {
  return run_local(model, "ddp_model_set_buckets", [&](model::Model& object) {
    require(numbers, "ddp_model_set_buckets", "numbers");
    if (count < 1)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_set_buckets: count is %d; it is 1 or more", count);
    object.gradients().set_buckets({numbers, static_cast<size_t>(count)});
  });
}

ddp_status ddp_model_sync_buffers(ddp_model* model, int32_t root, void* stream) {
  return run_collective(model, "ddp_model_sync_buffers", [&](model::Model& object) { sync_buffers(object, root, stream); });
}

ddp_status ddp_model_check_replicas(ddp_model* model, void* stream) {
  return run_collective(model, "ddp_model_check_replicas", [&](model::Model& object) { object.replicas().check(stream); });
}

ddp_status ddp_model_get_hash(const ddp_model* model, int64_t* out_hash) {
  return run_local(model, "ddp_model_get_hash", [&](model::Model& object) {
    require(out_hash, "ddp_model_get_hash", "out_hash");
    const uint64_t hash = object.replicas().hash();
    std::memcpy(out_hash, &hash, sizeof hash);
  });
}

ddp_status ddp_model_get_stats(const ddp_model* model, ddp_model_stats* out_stats) {
  return run_local(model, "ddp_model_get_stats", [&](model::Model& object) {
    require(out_stats, "ddp_model_get_stats", "out_stats");
    ddp_model_stats stats{};
    object.require_committed("ddp_model_get_stats");
    object.passes().meter().fill(stats);
    object.replicas().fill(stats);
    fill_sized(out_stats, stats, "ddp_model_get_stats");
  });
}

ddp_status ddp_model_describe_plan(const ddp_model* model, char* buffer, int64_t capacity, int64_t* out_needed) {
  return run_local(model, "ddp_model_describe_plan", [&](model::Model& object) {
    if (capacity < 0 || (capacity > 0 && buffer == nullptr))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_describe_plan: capacity is %lld but buffer is %s",
                       static_cast<long long>(capacity), buffer == nullptr ? "NULL" : "given");
    object.require_committed("ddp_model_describe_plan");
    const std::string text = object.pass().describe_plan();
    const auto needed = static_cast<int64_t>(text.size()) + 1;
    if (capacity > 0) {
      const auto kept = static_cast<size_t>(needed <= capacity ? needed : capacity) - 1;
      std::memcpy(buffer, text.data(), kept);
      buffer[kept] = '\0';
    }
    if (out_needed != nullptr) *out_needed = needed;
  });
}
