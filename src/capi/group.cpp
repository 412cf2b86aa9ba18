// SPDX-License-Identifier: Apache-2.0
// ddp/group.h.
#include "ddp/group.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "capi/hook.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "capi/tensors.hpp"
#include "control/limits.hpp"
#include "core/attempt.hpp"
#include "ddp/memory.h"
#include "ddp/rows.h"
#include "exchange/memory_holds.hpp"
#include "group/collective_call.hpp"
#include "group/gpu.hpp"
#include "group/split.hpp"
#include "os/at_exit.hpp"
#include "os/log.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

constexpr int32_t kMostCtas = 64;  // NCCL's own limit

ddp_group_options group_defaults() {
  ddp_group_options options{};
  options.rank = -1;
  options.world_size = -1;
  options.backend = DDP_BACKEND_AUTO;
  options.sum_order = DDP_SUM_ORDER_BY_RANK;
  options.device_index = -1;
  options.timeout_ms = 1'800'000;
  options.heartbeat_ms = 1'000;
  options.dead_after_ms = 10'000;
  options.rendezvous_timeout_ms = 120'000;
  return options;
}

/// In exit(): later groups first, as sub-groups are.
void exit_groups() {
  static_cast<void>(try_to([] {
    const std::vector<std::shared_ptr<group::Group>> groups = GroupTable::instance().all();
    for (auto each = groups.rbegin(); each != groups.rend(); ++each) group::Ending::exit(**each);
  }));
}

void fence_group(group::Group& broken) {
  if (const std::optional<Error> failed = try_to([&] { group::Ending::fence_memory(broken); }))
    os::log_of(*failed, DDP_LOG_ERROR, "ddp_group_destroy: the memory of its models stays in the reach of other ranks: %s",
               failed->what());
}

ddp_group* add(const std::shared_ptr<group::Group>& made) {
  os::at_exit(exit_groups);
  return GroupTable::instance().add(made);
}

void check_nccl_options(const ddp_group_options& options, const char* function) {
  if (options.nccl_max_ctas < 0 || options.nccl_max_ctas > kMostCtas)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: nccl_max_ctas is %d; it is 1 to %d, or 0 for NCCL's choice", function,
                     options.nccl_max_ctas, kMostCtas);
  if (options.nccl_max_ctas != 0 && options.nccl_comm != nullptr)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: nccl_max_ctas is %d, but nccl_comm has been made already; set it (maxCTAs) where that is made",
                     function, options.nccl_max_ctas);
}

void check_options(const ddp_group_options& options, const char* function) {
  if (options.backend < DDP_BACKEND_AUTO || options.backend > DDP_BACKEND_LOCAL)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: backend is %d; it is 0 to 4", function,
                     static_cast<int>(options.backend));
  if (options.sum_order < DDP_SUM_ORDER_BY_RANK || options.sum_order > DDP_SUM_ORDER_BY_HOST)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: sum_order is %d; it is 0 or 1", function,
                     static_cast<int>(options.sum_order));
  if (options.reproducible != 0 && options.reproducible != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: reproducible is %d; it is 0 or 1", function, options.reproducible);
  if (options.timeout_ms < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: timeout_ms is %lld; it is 0 (never) or more", function,
                     static_cast<long long>(options.timeout_ms));
  if (options.heartbeat_ms < 1 || options.dead_after_ms <= options.heartbeat_ms || options.rendezvous_timeout_ms < 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: heartbeat_ms is %lld, dead_after_ms %lld, rendezvous_timeout_ms %lld; they must be above 0, and "
                     "dead_after_ms above heartbeat_ms",
                     function, static_cast<long long>(options.heartbeat_ms), static_cast<long long>(options.dead_after_ms),
                     static_cast<long long>(options.rendezvous_timeout_ms));
  if (options.recoverable != 0 && options.recoverable != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: recoverable is %d; it is 0 or 1", function, options.recoverable);
  if (options.join != 0 && (options.join != 1 || options.recoverable != 1))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: join is %d and recoverable %d; a rank that joins has 1 for both, other ranks 0 for join", function,
                     options.join, options.recoverable);
  if (options.connect_all != 0 && options.connect_all != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: connect_all is %d; it is 0 or 1", function, options.connect_all);
  if (options.links < DDP_LINKS_AUTO || options.links > DDP_LINKS_PLAIN)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: links is %d; it is 0 to 2", function, static_cast<int>(options.links));
  if (options.requests != 0 && options.requests != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: requests is %d; it is 0 or 1", function, options.requests);
  if (options.one_thread != 0 && options.one_thread != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: one_thread is %d; it is 0 or 1", function, options.one_thread);
  if (options.virtual_ranks < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: virtual_ranks is %d; it is the number of parts of the global batch, or 0 for none", function,
                     options.virtual_ranks);
  if (options.virtual_ranks != 0 && options.sum_order != DDP_SUM_ORDER_BY_RANK)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: virtual_ranks is %d and sum_order is DDP_SUM_ORDER_BY_HOST, whose bits depend on the hosts; leave "
                     "one of them 0",
                     function, options.virtual_ranks);
  check_nccl_options(options, function);
}

/// Clocks that are slower count as this slow.
void limit_clocks(ddp_group_options& options) noexcept {
  constexpr int64_t kMost = bootstrap::limits::kSlowestClockMs;
  options.dead_after_ms = std::min(options.dead_after_ms, kMost);
  options.heartbeat_ms = std::min(options.heartbeat_ms, kMost - 1);
}

/// The parent's options, or the caller's own.
ddp_group_options split_options(const group::Group& parent, const ddp_group_options* options) {
  constexpr const char* kName = "ddp_group_split";
  ddp_group_options read = options == nullptr ? parent.options() : read_options(options, group_defaults(), kName);
  if (options != nullptr && (read.rank != -1 || read.world_size != -1 || read.store != nullptr))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: options->rank, world_size and store say how ranks of ddp_group_create meet; here they stay as "
                     "ddp_group_options_init left them",
                     kName);
  if (read.device_index < 0) read.device_index = parent.options().device_index;
  if (options == nullptr) {  // these two belong to the ranks of the parent
    read.nccl_comm = nullptr;
    read.virtual_ranks = 0;
  }
  check_options(read, kName);
  limit_clocks(read);
  return read;
}

/// A collective of a group: in_hook(bucket) where a hook calls it, otherwise body(group).
template <class InHook, class Body>
ddp_status in_hook_or_not(ddp_group* handle, const char* function, InHook&& in_hook, Body&& body) {
  if (is_in_hook(handle)) return guarded([&] { in_hook(*bucket_of(handle, function)); });
  return collective_short(handle, function, std::forward<Body>(body));
}

/// A list of indices and its rows.
void check_rows(const Tensor& indices, const Tensor& rows, const char* function) {
  if (indices.dtype != DDP_I64 || indices.ndim != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: indices is %s; it is a list of I64", function,
                     describe(indices).c_str());
  if (rows.ndim < 1 || rows.shape[0] != indices.count)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: rows is %s; its first dimension is the number of indices, which is %lld", function,
                     describe(rows).c_str(), static_cast<long long>(indices.count));
}

}  // namespace

ddp_status ddp_group_options_init(ddp_group_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, group_defaults(), "ddp_group_options_init"); });
}

ddp_status ddp_group_create(const char* rendezvous, const ddp_group_options* options, ddp_group** out_group) {
  return guarded([&] {
    require(out_group, "ddp_group_create", "out_group");
    ddp_group_options read = read_options(options, group_defaults(), "ddp_group_create");
    if (const char* const join = std::getenv("DDP_JOIN"); join != nullptr && std::string_view(join) == "1") read.join = 1;
    check_options(read, "ddp_group_create");
    limit_clocks(read);
    ddp_store store{};
    if (read.store != nullptr) {
      check_struct_size(read.store->struct_size, "ddp_group_create: options->store");
      store = read_options(read.store, store, "ddp_group_create: options->store");
      read.store = &store;
    }
    fence_broken_groups();
    const os::LogScope scope({os::next_log_group(), read.rank});
    *out_group = add(group::Group::create(rendezvous, read));
  });
}

ddp_status ddp_group_split(ddp_group* group, int32_t color, int32_t key, const ddp_group_options* options,
                           ddp_group** out_group) {
  constexpr const char* kName = "ddp_group_split";
  return run_collective(group, kName, [&](group::Group& object) {
    require(out_group, kName, "out_group");
    if (color < DDP_NO_COLOR)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: color is %d; it is 0 or more, or DDP_NO_COLOR (-1) for no group",
                       kName, color);
    fence_broken_groups();
    const os::LogScope scope({os::next_log_group(), -1});
    const std::shared_ptr<group::Group> made = group::split_group(object, {color, key}, split_options(object, options));
    *out_group = made ? add(made) : nullptr;
  });
}

void ddp_group_destroy(ddp_group* group) {
  (void)guarded([&] {
    auto object = GroupTable::instance().get(group);
    if (object == nullptr || is_refused_in_program(*object, "ddp_group_destroy")) return;
    object = GroupTable::instance().remove(group);
    if (object == nullptr) return;
    object->close();
    if (object.use_count() > 1) fence_group(*object);  // its models keep their memory
  });
}

ddp_status ddp_group_abort(ddp_group* group, const char* reason) {
  return guarded([&] {
    const auto object = group_of(group, "ddp_group_abort");
    const std::string text = reason != nullptr && *reason != '\0' ? reason : "no reason given";
    object->health().abort(Error(DDP_ERROR_ABORTED, object->name_of(object->rank()) + " aborted the group: " + text)
                               .with({.ranks = {object->rank()}}));
  });
}

ddp_status ddp_group_status(const ddp_group* group) {
  return guarded_short([&] { group_of(group, "ddp_group_status")->health().check_usable(); });
}

int32_t ddp_group_get_rank(const ddp_group* group) {
  constexpr const char* kName = "ddp_group_get_rank";
  return guarded_value<int32_t>(
      -1, [&] { return is_in_hook(group) ? bucket_of(group, kName)->rank() : group_of(group, kName)->rank(); });
}

int64_t ddp_group_get_number(const ddp_group* group) {
  return guarded_value<int64_t>(0, [&] { return group_of(group, "ddp_group_get_number")->origin().number; });
}

int32_t ddp_group_get_size(const ddp_group* group) {
  constexpr const char* kName = "ddp_group_get_size";
  return guarded_value<int32_t>(
      -1, [&] { return is_in_hook(group) ? bucket_of(group, kName)->size() : group_of(group, kName)->size(); });
}

ddp_backend ddp_group_get_backend(const ddp_group* group) {
  return guarded_value<ddp_backend>(DDP_BACKEND_AUTO, [&] { return group_of(group, "ddp_group_get_backend")->backend(); });
}

ddp_status ddp_group_barrier(ddp_group* group) {
  return collective_short(group, "ddp_group_barrier", [](group::Group& object) { object.barrier(); });
}

ddp_status ddp_group_all_reduce(ddp_group* group, const ddp_tensor* tensor, ddp_reduce op, void* stream) {
  constexpr const char* kName = "ddp_group_all_reduce";
  return in_hook_or_not(
      group, kName,
      [&](parts::HookBucket& bucket) {
        check_reduce(op, kName);
        bucket.all_reduce(host_tensor(tensor, "ddp_group_all_reduce: tensor"), op);
      },
      [&](group::Group& object) {
        check_reduce(op, kName);
        object.all_reduce(bound_tensor(object, tensor, "ddp_group_all_reduce: tensor"), op, stream);
      });
}

ddp_status ddp_group_all_gather(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, void* stream) {
  constexpr const char *kInput = "ddp_group_all_gather: input", *kOutput = "ddp_group_all_gather: output";
  return in_hook_or_not(
      group, "ddp_group_all_gather",
      [&](parts::HookBucket& bucket) { bucket.all_gather(host_tensor(input, kInput), host_tensor(output, kOutput)); },
      [&](group::Group& object) {
        object.all_gather(bound_tensor(object, input, kInput), bound_tensor(object, output, kOutput), stream);
      });
}

ddp_status ddp_group_reduce_scatter(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, ddp_reduce op,
                                    void* stream) {
  constexpr const char* kName = "ddp_group_reduce_scatter";
  constexpr const char *kInput = "ddp_group_reduce_scatter: input", *kOutput = "ddp_group_reduce_scatter: output";
  return in_hook_or_not(
      group, kName,
      [&](parts::HookBucket& bucket) {
        check_reduce(op, kName);
        bucket.reduce_scatter(host_tensor(input, kInput), host_tensor(output, kOutput), op);
      },
      [&](group::Group& object) {
        check_reduce(op, kName);
        object.reduce_scatter(bound_tensor(object, input, kInput), bound_tensor(object, output, kOutput), op, stream);
      });
}

ddp_status ddp_group_broadcast(ddp_group* group, const ddp_tensor* tensor, int32_t root, void* stream) {
  constexpr const char* kTensor = "ddp_group_broadcast: tensor";
  return in_hook_or_not(
      group, "ddp_group_broadcast", [&](parts::HookBucket& bucket) { bucket.broadcast(host_tensor(tensor, kTensor), root); },
      [&](group::Group& object) { object.broadcast(bound_tensor(object, tensor, kTensor), root, stream); });
}

ddp_status ddp_group_reduce_metrics(ddp_group* group, double* values, int64_t count, ddp_reduce op) {
  return collective_short(group, "ddp_group_reduce_metrics", [&](group::Group& object) {
    require(values, "ddp_group_reduce_metrics", "values");
    check_reduce(op, "ddp_group_reduce_metrics");
    if (count < 1 || count > 1024)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "ddp_group_reduce_metrics: count is %lld; 1 to 1,024 numbers are possible",
                       static_cast<long long>(count));
    const Tensor numbers = flat_tensor(values, DDP_F64, count);
    object.gpu().require_host(numbers, "ddp_group_reduce_metrics: values", gpu::kCopyIt);
    group::reduce_metrics(object, numbers, op);
  });
}

ddp_status ddp_group_all_reduce_rows(ddp_group* group, const ddp_tensor* indices, const ddp_tensor* rows, ddp_reduce op,
                                     int64_t* out_count, void*) {
  constexpr const char* kName = "ddp_group_all_reduce_rows";
  return run_collective(group, kName, [&](group::Group& object) {
    require(out_count, kName, "out_count");
    if (op != DDP_AVERAGE && op != DDP_SUM)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: op is %d; rows are averaged (0) or summed (1)", kName,
                       static_cast<int>(op));
    const Tensor list = host_tensor(indices, (std::string(kName) + ": indices").c_str());
    const Tensor data = host_tensor(rows, (std::string(kName) + ": rows").c_str());
    check_rows(list, data, kName);
    const auto* const first = reinterpret_cast<const int64_t*>(list.data);
    for (int64_t i = 0; i < list.count; ++i)
      if (first[i] < 0)
        throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: index %lld is %lld; it is 0 or more", kName,
                         static_cast<long long>(i), static_cast<long long>(first[i]));
    *out_count = object.all_reduce_rows(list, data, op);
  });
}

ddp_status ddp_group_get_rows(const ddp_group* group, const ddp_tensor* indices, const ddp_tensor* rows) {
  constexpr const char* kName = "ddp_group_get_rows";
  return run_local(group, kName, [&](const group::Group& object) {
    const Tensor list = host_tensor(indices, (std::string(kName) + ": indices").c_str());
    const Tensor data = host_tensor(rows, (std::string(kName) + ": rows").c_str());
    check_rows(list, data, kName);
    object.get_rows(list, data);
  });
}

ddp_status ddp_group_alloc(ddp_group* group, int64_t bytes, void** out_data) {
  return guarded([&] {
    const auto object = group_of(group, "ddp_group_alloc");
    require(out_data, "ddp_group_alloc", "out_data");
    if (bytes < 1)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_alloc: bytes is %lld; it is 1 or more",
                       static_cast<long long>(bytes));
    *out_data = object->memory().alloc(bytes);
  });
}

ddp_status ddp_group_free(ddp_group* group, void* data) {
  return guarded([&] {
    const auto object = group_of(group, "ddp_group_free");
    if (data != nullptr) object->memory().free(data);
  });
}

ddp_status ddp_group_share(ddp_group* group, void* data, int64_t bytes) {
  constexpr const char* kName = "ddp_group_share";
  return run_local(group, kName, [&](group::Group& object) {
    require(data, kName, "data");
    if (bytes < 1)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: bytes is %lld; it is 1 or more", kName,
                       static_cast<long long>(bytes));
    gpu::require_unregistered(data, bytes, kName);
    object.memory().share(data, bytes);
  });
}

ddp_status ddp_group_unshare(ddp_group* group, void* data) {
  return run_local(group, "ddp_group_unshare", [&](group::Group& object) {
    if (data != nullptr) object.memory().unshare(data);
  });
}

ddp_status ddp_memory_retain(const void* data) {
  return guarded([&] {
    require(data, "ddp_memory_retain", "data");
    if (!collective::MemoryHolds::instance().retain(data))
      throw Error(DDP_ERROR_INVALID_ARGUMENT,
                  "ddp_memory_retain: the address lies in no host memory of libddp: neither in a gradient that it owns nor "
                  "in memory of "
                  "ddp_group_alloc, or that memory is gone");
  });
}

ddp_status ddp_memory_release(const void* data) {
  return guarded([&] {
    if (data != nullptr && !collective::MemoryHolds::instance().release(data))
      throw Error(DDP_ERROR_INVALID_ARGUMENT,
                  "ddp_memory_release: the address lies in no memory that ddp_memory_retain holds");
  });
}
