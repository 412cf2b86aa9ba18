// Which table each handle kind lives in, and the short way from a handle to its object.
#pragma once

#include <memory>
#include <string>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "comm/group.hpp"
#include "reduce/model.hpp"
#include "update/ema.hpp"
#include "update/optimizer.hpp"

namespace ddp::capi {

using GroupTable = HandleTable<Group, ddp_group, 0xd1>;
using ModelTable = HandleTable<Model, ddp_model, 0xd2>;
using OptimizerTable = HandleTable<Optimizer, ddp_optimizer, 0xd3>;
using EmaTable = HandleTable<Ema, ddp_ema, 0xd4>;

inline std::shared_ptr<Group> group_of(const ddp_group* handle, const char* function) {
  return resolve(GroupTable::instance(), handle, function, "group");
}
inline std::shared_ptr<Model> model_of(const ddp_model* handle, const char* function) {
  return resolve(ModelTable::instance(), handle, function, "model");
}
inline std::shared_ptr<Optimizer> optimizer_of(const ddp_optimizer* handle, const char* function) {
  return resolve(OptimizerTable::instance(), handle, function, "optimizer");
}
inline std::shared_ptr<Ema> ema_of(const ddp_ema* handle, const char* function) {
  return resolve(EmaTable::instance(), handle, function, "ema");
}

/// Throws INVALID_ARGUMENT unless `index` is a parameter of the model.
inline void check_index(const Model& model, int32_t index, const char* function) {
  if (index < 0 || index >= model.table().parameter_count())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: index is %d; the model has %d parameters, counted from 0", function, index,
                     model.table().parameter_count());
}

/// The tensor, wherever it lies, checked; for calls that take tensors on a GPU too.
inline Tensor bound_tensor(Group& group, const ddp_tensor* tensor, const char* what) {
  Tensor checked = checked_any_tensor(tensor, what);
  group.bind(checked, what);
  return checked;
}

}  // namespace ddp::capi
