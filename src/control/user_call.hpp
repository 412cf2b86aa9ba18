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

/// Part of what ranks compare; equal on all ranks.
enum class UserCall : uint16_t {
  kNone = 0,
  kBarrier,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduceMetrics,
  kAllReduceRows,
  kCommit,
  kSyncBuffers,
  kCheck,
  kAverageParameters,
  kGetGradNorm,
  kClipGradNorm,
  kOptimizerStep,
  kBatchNormForward,
  kBatchNormBackward,
  kSave,
  kSaveFile,
  kLoad,
  kLoadFile,
  kSaveLatest,
  kLoadLatest,
  kSplit,
  kStartTrace,
  kStopTrace,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kAllGatherCounts,
  kSend,
  kReceive,
  kStateKeep,
  kReopen,
  kPostBarrier,
  kPostAllReduce,
  kPostAllGather,
  kPostReduceScatter,
  kPostBroadcast,
  kPostReduce,
  kPostGather,
  kPostScatter,
  kPostAllToAll,
  kPostAllGatherCounts,
  kPostSend,
  kPostReceive,
  kRequestWait,
  kRequestWaitAny,
  kEndBackward,
  kSkipBackward,
  kAbandonBackward,
  kJoin,
  kNextBucket,
  kFinishBucket,
  kBucketAllReduce,
  kBucketAllGather,
  kBucketReduceScatter,
  kBucketBroadcast,
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
