// ddp/recover.h.
#include "ddp/recover.h"

#include <algorithm>
#include <chrono>

#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "group/recovery.hpp"
#include "group/survival.hpp"
#include "os/clock.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_recover_options default_options() {
  ddp_recover_options options{};
  options.wait_ms = 60'000;
  options.min_ranks = 1;
  return options;
}

group::RecoveryRule rule_of(const ddp_recover_options& options) {
  constexpr const char* kName = "ddp_group_recover";
  if (options.wait_ms < 0 || options.min_ranks < 1 || options.allow_half < 0 || options.allow_half > 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: wait_ms is %lld, min_ranks %d and allow_half %d; they are 0 or more, 1 or more, and 0 or 1", kName,
                     static_cast<long long>(options.wait_ms), options.min_ranks, options.allow_half);
  return {options.min_ranks, options.allow_half == 1, options.wait_ms};
}

void require_recoverable(group::Group& group) {
  if (group::Recovery::survival(group) == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_group_recover: the group was made without the option recoverable = 1; go on from a checkpoint");
  if (!group::Recovery::await_broken(group))
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_group_recover: the group is whole; it is for a group in which a call has failed with TIMED_OUT, "
                "PEER_FAILED or ABORTED");
}

}  // namespace

ddp_status ddp_recover_options_init(ddp_recover_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, default_options(), "ddp_recover_options_init"); });
}

ddp_status ddp_group_get_failed(const ddp_group* group, int32_t* ranks, int32_t capacity, int32_t* out_count) {
  constexpr const char* kName = "ddp_group_get_failed";
  return guarded([&] {
    const auto object = group_of(group, kName);
    require(out_count, kName, "out_count");
    if (capacity < 0 || (capacity > 0 && ranks == nullptr))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: capacity is %d; it is the number of elements of ranks, or 0", kName,
                       capacity);
    const std::vector<int32_t> failed = group::Recovery::failed(*object);
    const auto fits = std::min(failed.size(), static_cast<size_t>(capacity));
    std::copy_n(failed.begin(), fits, ranks);
    *out_count = static_cast<int32_t>(failed.size());
  });
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
    progress.silent = known.silent;
    fill_sized(out_progress, progress, kName);
  });
}

ddp_status ddp_group_recover(ddp_group* group, const ddp_recover_options* options, ddp_recovery* out_recovery) {
  constexpr const char* kName = "ddp_group_recover";
  return run_collective(group, kName, [&](group::Group& object) {
    const group::RecoveryRule rule = rule_of(read_options(options, default_options(), kName));
    if (out_recovery != nullptr) check_struct_size(out_recovery->struct_size, kName);
    require_recoverable(object);
    const int64_t begin = os::now_ns();
    ddp_recovery recovery{};
    recovery.previous_rank = object.rank();
    recovery.previous_size = object.size();
    recovery.source = group::Recovery::run(object, rule);
    recovery.generation = group::Recovery::survival(object)->generation();
    recovery.rank = object.rank();
    recovery.size = object.size();
    recovery.seconds = static_cast<double>(os::now_ns() - begin) * 1e-9;
    if (out_recovery != nullptr) fill_sized(out_recovery, recovery, kName);
  });
}
