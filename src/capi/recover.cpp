// SPDX-License-Identifier: Apache-2.0
// ddp/recover.h.
#include "ddp/recover.h"

#include <algorithm>
#include <chrono>

#include "capi/guard.hpp"
#include "capi/lists.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "group/recovery.hpp"
#include "group/survival.hpp"
#include "os/clock.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_recover_options recover_defaults() {
  ddp_recover_options options{};
  options.wait_ms = 60'000;
  options.min_ranks = 1;
  options.cool_down_ms = 10'000;
  return options;
}

group::RecoveryRule rule_of(const ddp_recover_options& options) {
  constexpr const char* kName = "ddp_group_recover";
  if (options.wait_ms < 0 || options.min_ranks < 1 || options.allow_half < 0 || options.allow_half > 1 ||
      options.cool_down_ms < 0)
    throw make_error(
        DDP_ERROR_INVALID_ARGUMENT,
        "%s: wait_ms is %lld, min_ranks %d, allow_half %d and cool_down_ms %lld; they are 0 or more, 1 or more, "
        "0 or 1, and 0 or more",
        kName, static_cast<long long>(options.wait_ms), options.min_ranks, options.allow_half,
        static_cast<long long>(options.cool_down_ms));
  return {options.min_ranks, options.allow_half == 1, options.wait_ms, options.cool_down_ms};
}

void require_recoverable(group::Group& group) {
  if (group::Recovery::survival(group) == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_group_recover: the group was made without the option recoverable = 1; go on from a checkpoint");
  if (!group::Recovery::await_broken(group))
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_group_recover: the group is whole; it is for a group for which ddp_group_status gives an error");
}

/// Write what `get` gives of the group.
template <class Get>
ddp_status get_ranks(const char* function, const ddp_group* group, const ListTo& to, Get get) {
  return guarded([&] {
    const auto object = group_of(group, function);
    check_list(to, "ranks", function);
    write_list(to, get(*object));
  });
}

void recover(group::Group& object, const ddp_recover_options* options, ddp_recovery* out_recovery, const char* function) {
  const group::RecoveryRule rule = rule_of(read_options(options, recover_defaults(), function));
  if (out_recovery != nullptr) check_struct_size(out_recovery->struct_size, function);
  require_recoverable(object);
  const int64_t begin = os::now_ns();
  ddp_recovery recovery{};
  recovery.previous_rank = object.rank();
  recovery.previous_size = object.size();
  const group::Recovery::Outcome outcome = group::Recovery::run(object, rule);
  recovery.source = outcome.source;
  recovery.step = outcome.step;
  recovery.went_back = outcome.kept.went_back;
  recovery.kept_epoch = outcome.kept.epoch;
  recovery.kept_step = outcome.kept.step;
  recovery.generation = group::Recovery::survival(object)->generation();
  recovery.rank = object.rank();
  recovery.size = object.size();
  recovery.seconds = static_cast<double>(os::now_ns() - begin) * 1e-9;
  if (out_recovery != nullptr) fill_sized(out_recovery, recovery, function);
}

}  // namespace

ddp_status ddp_recover_options_init(ddp_recover_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, recover_defaults(), "ddp_recover_options_init"); });
}

ddp_status ddp_group_get_failed(const ddp_group* group, int32_t* ranks, int32_t capacity, int32_t* out_count) {
  return get_ranks("ddp_group_get_failed", group, {ranks, capacity, out_count}, group::Recovery::failed);
}

ddp_status ddp_group_get_gone(const ddp_group* group, int32_t* ranks, int32_t capacity, int32_t* out_count) {
  return get_ranks("ddp_group_get_gone", group, {ranks, capacity, out_count},
                   [](const group::Group& object) { return group::Recovery::changes(object).gone(); });
}

ddp_status ddp_group_get_joined(const ddp_group* group, int32_t* ranks, int32_t capacity, int32_t* out_count) {
  return get_ranks("ddp_group_get_joined", group, {ranks, capacity, out_count},
                   [](const group::Group& object) { return group::Recovery::changes(object).joined; });
}

ddp_status ddp_group_get_renumbered(const ddp_group* group, int32_t* ranks, int32_t capacity, int32_t* out_count) {
  return get_ranks("ddp_group_get_renumbered", group, {ranks, capacity, out_count},
                   [](const group::Group& object) { return group::Recovery::changes(object).renumbered; });
}

ddp_status ddp_group_get_progress(const ddp_group* group, int32_t rank, ddp_rank_progress* out_progress) {
  constexpr const char* kName = "ddp_group_get_progress";
  return guarded([&] {
    const auto object = group_of(group, kName);
    require(out_progress, kName, "out_progress");
    if (rank < 0 || rank >= object->size())
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: rank is %d; the group has the ranks 0 to %d", kName, rank,
                       object->size() - 1);
    const group::Recovery::Progress known = group::Recovery::progress(*object, rank);
    ddp_rank_progress progress{};
    progress.pass_index = known.pass;
    progress.bucket = known.bucket;
    progress.in_call = known.in_call ? 1 : 0;
    progress.silent = known.silent;
    progress.call = known.call;
    fill_sized(out_progress, progress, kName);
  });
}

ddp_status ddp_group_recover(ddp_group* group, const ddp_recover_options* options, ddp_recovery* out_recovery) {
  constexpr const char* kName = "ddp_group_recover";
  return guarded([&] {
    const auto object = group_of(group, kName);
    require_outside_program(*object, kName);
    // Its refusals are not replaced by the first cause, which the program already has.
    group::or_break(*object, group::Part::kCall, kName, [&] { recover(*object, options, out_recovery, kName); });
  });
}
