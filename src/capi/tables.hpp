// SPDX-License-Identifier: Apache-2.0
// Which table each handle kind lives in, and the short way from a handle to its object.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "capi/reentry.hpp"
#include "core/attempt.hpp"
#include "ddp/hook.h"
#include "group/consensus.hpp"
#include "group/ending.hpp"
#include "group/group.hpp"
#include "model/model.hpp"
#include "os/log.hpp"

namespace ddp::parts {
class HookBucket;
}  // namespace ddp::parts
namespace ddp::capi {

using GroupTable = HandleTable<group::Group, ddp_group, 0xd1>;
using ModelTable = HandleTable<model::Model, ddp_model, 0xd2>;
using BucketTable = HandleTable<parts::HookBucket, ddp_bucket, 0xd5>;

/// The table of each handle kind, and what errors call its objects. Of what is built on a model: state_tables.hpp.
template <class Handle>
struct Kind;
template <>
struct Kind<ddp_group> {
  using Table = GroupTable;
  static constexpr const char* kName = "group";
};
template <>
struct Kind<ddp_model> {
  using Table = ModelTable;
  static constexpr const char* kName = "model";
};
template <>
struct Kind<ddp_bucket> {
  using Table = BucketTable;
  static constexpr const char* kName = "bucket";
};

/// Is it the group that a hook got for its bucket (ddp_bucket_get_group)? Its handle is that of the bucket.
inline bool is_in_hook(const ddp_group* handle) noexcept { return BucketTable::is_kind(handle); }

template <class Handle>
auto object_of(const Handle* handle, const char* function) {
  if constexpr (std::is_same_v<Handle, ddp_group>)
    if (is_in_hook(handle))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "%s: group is the one that ddp_bucket_get_group gave inside a hook; it takes ddp_group_all_reduce, "
                       "all_gather, reduce_scatter, broadcast, rank and size",
                       function);
  return resolve(Kind<Handle>::Table::instance(), handle, function, Kind<Handle>::kName);
}
inline std::shared_ptr<group::Group> group_of(const ddp_group* handle, const char* function) {
  return object_of(handle, function);
}
inline std::shared_ptr<model::Model> model_of(const ddp_model* handle, const char* function) {
  return object_of(handle, function);
}

/// What broken groups of this process gave out may be lent again, to a new group or another one, so a rank that they left
/// behind must not reach it. Throws OUT_OF_MEMORY.
inline void fence_broken_groups() {
  for (const std::shared_ptr<group::Group>& each : GroupTable::instance().all()) group::Ending::fence_memory(*each);
}

inline void check_reduce(ddp_reduce op, const char* function) {
  if (op < DDP_AVERAGE || op > DDP_PRODUCT)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: op is %d; it is 0 to 4", function, static_cast<int>(op));
}

inline group::Group& group_behind(group::Group& group) noexcept { return group; }
inline group::Group& group_behind(model::Model& model) { return model.group(); }
template <class Object>
group::Group& group_behind(Object& object) {
  return object.model().group();
}

/// What the log says of what this thread does for the group.
inline os::LogAbout about(const group::Group& group) noexcept { return {group.origin().number, group.rank()}; }

/// Gives what the body gives. In a broken group a call that is refused because of a state (no pass is open, the model is not
/// committed) throws the first cause instead, which has led to that state. A rank that the group has given up may resume
/// later, so memory of the program is out of its reach before the program learns of it.
template <class Body>
auto or_first_cause(group::Group& group, Body&& body) {
  return on_error<Error>(body, [&](const Error& error) {
    if (group.health().has_fault()) group.memory().make_private();
    if (error.status() == DDP_ERROR_INVALID_STATE) group.health().check_no_fault();  // a rank that left has led to none
  });
}

/// As guarded_short(), for a call that is collective: body(object). A lack of memory, threads or descriptors on this rank
/// alone breaks the group, because the other ranks are in the call.
template <class Handle, class Body>
ddp_status collective_short(const Handle* handle, const char* function, Body&& body) {
  return guarded_short(function, [&] {
    const auto object = object_of(handle, function);
    group::Group& group = group_behind(*object);
    require_outside_program(group, function);
    or_first_cause(group, [&] { group::or_break(group, group::Part::kCall, function, [&] { body(*object); }); });
  });
}

/// As guarded(), for a local call: body(object).
template <class Handle, class Body>
ddp_status run_local(const Handle* handle, const char* function, Body&& body) {
  return guarded(function, [&] {
    const auto object = object_of(handle, function);
    const os::LogScope scope(about(group_behind(*object)));
    or_first_cause(group_behind(*object), [&] { body(*object); });
  });
}

/// As guarded(), in the same way.
template <class Handle, class Body>
ddp_status run_collective(const Handle* handle, const char* function, Body&& body) {
  const StandardFloats floats;
  return collective_short(handle, function, [&](auto& object) {
    const os::LogScope scope(about(group_behind(object)));
    body(object);
  });
}

/// Throws INVALID_ARGUMENT unless `index` is a parameter of the model.
inline void check_index(const model::Model& model, int32_t index, const char* function) {
  if (index < 0 || index >= model.table().parameter_count())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: index is %d; the model has %d parameters, counted from 0", function,
                     index, model.table().parameter_count());
  if (model.table().parameter(index).removed)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: index is %d, and that parameter was removed", function, index);
}

}  // namespace ddp::capi
