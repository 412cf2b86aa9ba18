// SPDX-License-Identifier: Apache-2.0
// The public functions that are collective, as numbers: ranks tell each other in which one they are, and error texts name
// it.
// Pure. Any thread.
// Tested by unit/control/call_state_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::bootstrap {

// clang-format off
/// The table: a call costs one line here. Groups send the numbers, so the order is part of the protocol.
#define DDP_USER_CALLS(CALL) \
  CALL(kBarrier, "ddp_group_barrier")                              \
  CALL(kAllReduce, "ddp_group_all_reduce")                         \
  CALL(kAllGather, "ddp_group_all_gather")                         \
  CALL(kReduceScatter, "ddp_group_reduce_scatter")                 \
  CALL(kBroadcast, "ddp_group_broadcast")                          \
  CALL(kReduceMetrics, "ddp_group_reduce_metrics")                 \
  CALL(kAllReduceRows, "ddp_group_all_reduce_rows")                \
  CALL(kCommit, "ddp_model_commit")                                \
  CALL(kSyncBuffers, "ddp_model_sync_buffers")                     \
  CALL(kCheck, "ddp_model_check_replicas")                         \
  CALL(kAverageParameters, "ddp_model_average_parameters")         \
  CALL(kGetGradNorm, "ddp_model_get_grad_norm")                    \
  CALL(kClipGradNorm, "ddp_model_clip_grad_norm")                  \
  CALL(kOptimizerStep, "ddp_optimizer_step")                       \
  CALL(kBatchNormForward, "ddp_batch_norm_forward")                \
  CALL(kBatchNormBackward, "ddp_batch_norm_backward")              \
  CALL(kSave, "ddp_state_save")                                    \
  CALL(kSaveFile, "ddp_state_save_file")                           \
  CALL(kLoad, "ddp_state_load")                                    \
  CALL(kLoadFile, "ddp_state_load_file")                           \
  CALL(kSaveLatest, "ddp_state_save_latest")                       \
  CALL(kLoadLatest, "ddp_state_load_latest")                       \
  CALL(kSplit, "ddp_group_split")                                  \
  CALL(kStartTrace, "ddp_group_start_trace")                       \
  CALL(kStopTrace, "ddp_group_stop_trace")                         \
  CALL(kReduce, "ddp_group_reduce")                                \
  CALL(kGather, "ddp_group_gather")                                \
  CALL(kScatter, "ddp_group_scatter")                              \
  CALL(kAllToAll, "ddp_group_all_to_all")                          \
  CALL(kAllGatherCounts, "ddp_group_all_gather_counts")            \
  CALL(kSend, "ddp_group_send")                                    \
  CALL(kReceive, "ddp_group_receive")                              \
  CALL(kStateKeep, "ddp_state_keep")                               \
  CALL(kReopen, "ddp_model_reopen")                                \
  CALL(kPostBarrier, "ddp_group_post_barrier")                     \
  CALL(kPostAllReduce, "ddp_group_post_all_reduce")                \
  CALL(kPostAllGather, "ddp_group_post_all_gather")                \
  CALL(kPostReduceScatter, "ddp_group_post_reduce_scatter")        \
  CALL(kPostBroadcast, "ddp_group_post_broadcast")                 \
  CALL(kPostReduce, "ddp_group_post_reduce")                       \
  CALL(kPostGather, "ddp_group_post_gather")                       \
  CALL(kPostScatter, "ddp_group_post_scatter")                     \
  CALL(kPostAllToAll, "ddp_group_post_all_to_all")                 \
  CALL(kPostAllGatherCounts, "ddp_group_post_all_gather_counts")   \
  CALL(kPostSend, "ddp_group_post_send")                           \
  CALL(kPostReceive, "ddp_group_post_receive")                     \
  CALL(kRequestWait, "ddp_request_wait")                           \
  CALL(kRequestWaitAny, "ddp_request_wait_any")                    \
  CALL(kEndBackward, "ddp_model_end_backward")                     \
  CALL(kSkipBackward, "ddp_model_skip_backward")                   \
  CALL(kAbandonBackward, "ddp_model_abandon_backward")             \
  CALL(kJoin, "ddp_model_join")                                    \
  CALL(kNextBucket, "ddp_model_next_bucket")                       \
  CALL(kFinishBucket, "ddp_model_finish_bucket")                   \
  CALL(kBucketAllReduce, "ddp_group_all_reduce in a hook")         \
  CALL(kBucketAllGather, "ddp_group_all_gather in a hook")         \
  CALL(kBucketReduceScatter, "ddp_group_reduce_scatter in a hook") \
  CALL(kBucketBroadcast, "ddp_group_broadcast in a hook")
// clang-format on

/// Part of what ranks compare; equal on all ranks.
enum class UserCall : uint16_t {
  kNone = 0,
#define DDP_USER_CALL(id, name) id,
  DDP_USER_CALLS(DDP_USER_CALL)
#undef DDP_USER_CALL
};
inline constexpr UserCall kLastUserCall = UserCall::kBucketBroadcast;

/// The call that posts what this one waits for: kPostBarrier of kBarrier.
[[nodiscard]] constexpr UserCall posted(UserCall call) noexcept {
  const auto number = static_cast<uint16_t>(call);
  const bool early = call <= UserCall::kBroadcast;
  const auto first = static_cast<uint16_t>(early ? UserCall::kBarrier : UserCall::kReduce);
  return static_cast<UserCall>(number - first +
                               static_cast<uint16_t>(early ? UserCall::kPostBarrier : UserCall::kPostReduce));
}
static_assert(posted(UserCall::kBroadcast) == UserCall::kPostBroadcast);
static_assert(posted(UserCall::kReceive) == UserCall::kPostReceive);

/// "ddp_group_barrier"; "" for kNone.
[[nodiscard]] const char* name_of(UserCall call) noexcept;
/// kNone for any other name.
[[nodiscard]] UserCall user_call(std::string_view function) noexcept;

/// What a rank in this call may meet on the others: itself, or kNone for all that take part in a backward pass, because
/// ranks end one pass in different ways (end, skip, abandon, join), and some of it runs on a library thread while the
/// program computes.
[[nodiscard]] constexpr UserCall compared_as(UserCall call) noexcept {
  return call >= UserCall::kEndBackward ? UserCall::kNone : call;
}

/// For error texts: ddp_model_commit ("gradient memory"); one of the two alone where there is no other.
[[nodiscard]] std::string describe_call(UserCall call, std::string_view what);

}  // namespace ddp::bootstrap
