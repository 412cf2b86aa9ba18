// SPDX-License-Identifier: Apache-2.0
// ddp/trace.h.
#include "ddp/trace.h"

#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "group/tracing.hpp"
#include "trace/program_numbers.hpp"
#include "trace/ring.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_trace_options default_trace() {
  ddp_trace_options options{};
  options.capacity = trace::kDefaultEvents;
  return options;
}

}  // namespace

ddp_status ddp_trace_options_init(ddp_trace_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, default_trace(), "ddp_trace_options_init"); });
}

ddp_status ddp_group_start_trace(ddp_group* group, const char* path, const ddp_trace_options* options) {
  constexpr const char* kName = "ddp_group_start_trace";
  return run_collective(group, kName, [&](group::Group& object) {
    const ddp_trace_options asked = read_options(options, default_trace(), kName);
    if (asked.capacity < trace::kLeastEvents || asked.capacity > trace::kMostEvents)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: capacity is %lld; it is a number of events from %lld to %lld", kName,
                       static_cast<long long>(asked.capacity), static_cast<long long>(trace::kLeastEvents),
                       static_cast<long long>(trace::kMostEvents));
    group::start_trace(object, path != nullptr ? path : "", {asked.capacity});
  });
}

ddp_status ddp_group_stop_trace(ddp_group* group) {
  return run_collective(group, "ddp_group_stop_trace", [](group::Group& object) { group::stop_trace(object); });
}

ddp_status ddp_group_log_metric(ddp_group* group, const char* name, double value) {
  constexpr const char* kName = "ddp_group_log_metric";
  return guarded_short([&] {
    const auto object = group_of(group, kName);
    require(name, kName, "name");
    if (!trace::ProgramNumbers::is_name(name))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "%s: name is \"%.64s\"; a name has 1 to 63 letters of ASCII, digits, or . _ - / :", kName, name);
    if (object->origin().threads && object->rank() != 0) return;
    if (!trace::ProgramNumbers::instance().log(name, value))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "%s: \"%s\" would be name number %zu of this process, which has at most %zu; log each step under the "
                       "same name",
                       kName, name, trace::ProgramNumber::kMost + 1, trace::ProgramNumber::kMost);
  });
}
