// SPDX-License-Identifier: Apache-2.0
#include "control/user_call.hpp"

#include <array>

namespace ddp::bootstrap {
namespace {

constexpr std::array kNames = {
    "",
    "ddp_group_barrier",
    "ddp_group_all_reduce",
    "ddp_group_all_gather",
    "ddp_group_reduce_scatter",
    "ddp_group_broadcast",
    "ddp_group_reduce_metrics",
    "ddp_group_all_reduce_rows",
    "ddp_model_commit",
    "ddp_model_sync_buffers",
    "ddp_model_check_replicas",
    "ddp_model_average_parameters",
    "ddp_model_get_grad_norm",
    "ddp_model_clip_grad_norm",
    "ddp_optimizer_step",
    "ddp_batch_norm_forward",
    "ddp_batch_norm_backward",
    "ddp_state_save",
    "ddp_state_save_file",
    "ddp_state_load",
    "ddp_state_load_file",
    "ddp_state_save_latest",
    "ddp_state_load_latest",
    "ddp_group_split",
    "ddp_group_start_trace",
    "ddp_group_stop_trace",
    "ddp_group_reduce",
    "ddp_group_gather",
    "ddp_group_scatter",
    "ddp_group_all_to_all",
    "ddp_group_all_gather_counts",
    "ddp_group_send",
    "ddp_group_receive",
    "ddp_state_keep",
    "ddp_model_reopen",
    "ddp_group_post_barrier",
    "ddp_group_post_all_reduce",
    "ddp_group_post_all_gather",
    "ddp_group_post_reduce_scatter",
    "ddp_group_post_broadcast",
    "ddp_group_post_reduce",
    "ddp_group_post_gather",
    "ddp_group_post_scatter",
    "ddp_group_post_all_to_all",
    "ddp_group_post_all_gather_counts",
    "ddp_group_post_send",
    "ddp_group_post_receive",
    "ddp_request_wait",
    "ddp_request_wait_any",
    "ddp_model_end_backward",
    "ddp_model_skip_backward",
    "ddp_model_abandon_backward",
    "ddp_model_join",
    "ddp_model_next_bucket",
    "ddp_model_finish_bucket",
    "ddp_group_all_reduce in a hook",
    "ddp_group_all_gather in a hook",
    "ddp_group_reduce_scatter in a hook",
    "ddp_group_broadcast in a hook",
};
static_assert(kNames.size() == static_cast<size_t>(kLastUserCall) + 1);

}  // namespace

const char* name_of(UserCall call) noexcept {
  const auto at = static_cast<size_t>(call);
  return at < kNames.size() ? kNames[at] : "";
}

UserCall user_call(std::string_view function) noexcept {
  for (size_t at = 1; at < kNames.size(); ++at)
    if (function == kNames[at]) return static_cast<UserCall>(at);
  return UserCall::kNone;
}

std::string describe_call(UserCall call, std::string_view what) {
  std::string name = name_of(call);
  if (what.empty() || what == name) return name;
  const std::string quoted = "\"" + std::string(what) + "\"";
  return name.empty() ? quoted : name + " (" + quoted + ")";
}

}  // namespace ddp::bootstrap
