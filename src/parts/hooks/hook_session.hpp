// SPDX-License-Identifier: Apache-2.0
// What all buckets of a model with a hook share: one copy of a bucket at a time, and the rounds that keep the ranks in step.
//
// Before every collective of a hook, and when it ends, each rank announces its next call, in one small message. It is made
// only if all ranks announce the same. So if a hook fails on one rank, or takes another branch there, all ranks know it in
// the same round: the pass fails on all with its text, and the group stays usable. Cost: one gather of half a KiB a rank for
// each round. Threads: one at a time (the queue's, or the program's for buckets that are pulled). Tested by
// conformance/hook_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/group.hpp"
#include "parts/hooks/hook.hpp"

namespace ddp::parts {

class HookSession {
 public:
  /// The next call of a rank; if it differs between ranks, no rank makes it. Plain bytes.
  struct Step {
    enum class Kind : int32_t { kAllReduce = 1, kAllGather, kReduceScatter, kBroadcast, kEnd, kFailure };
    Kind kind = Kind::kEnd;
    int32_t bucket = 0;
    ddp_dtype dtype = DDP_U8;
    ddp_reduce op = DDP_SUM;
    int32_t root = 0;
    int32_t reserved = 0;
    int64_t count = 0;
    [[nodiscard]] bool operator==(const Step&) const noexcept = default;
    [[nodiscard]] std::string describe() const;
  };

  /// Collective. `most_words`: the longest BucketHeader::used. Throws OUT_OF_MEMORY on all ranks if one lacks it.
  HookSession(const group::Channel& channel, Hook hook, ddp_reduce reduce, int64_t largest_bucket_bytes, size_t most_words);
  ~HookSession();
  HookSession(const HookSession&) = delete;
  HookSession& operator=(const HookSession&) = delete;

  [[nodiscard]] group::Group& group() const noexcept { return group_; }
  [[nodiscard]] collective::Transport& transport() const noexcept { return channel_.transport(); }
  [[nodiscard]] const Hook& hook() const noexcept { return hook_; }
  [[nodiscard]] ddp_reduce reduce() const noexcept { return reduce_; }
  /// For the calls that a program makes on a bucket that it has pulled; NULL: they come from inside a hook.
  [[nodiscard]] bootstrap::CallState* calls() const noexcept {
    return hook_.kind == Hook::Kind::kPulled ? &group_.calls() : nullptr;
  }
  /// The copy of the bucket that is open.
  [[nodiscard]] std::byte* contents() const noexcept { return contents_; }
  /// Memory of at least this many bytes in the group's reach, kept for the next time.
  [[nodiscard]] std::byte* scratch(int64_t bytes);

  void begin_pass() noexcept { failure_.reset(); }
  /// A REDUCE pass has ended; one that is void does not count, because it is made again.
  void end_pass(bool is_void) noexcept {
    if (!is_void) ++pass_number_;
  }
  void forget() noexcept {
    pass_number_ = 1;
    ++loads_;
  }
  /// Of the pass that is open: one more than the REDUCE passes that ended well since the commit or the last load.
  [[nodiscard]] int64_t pass_number() const noexcept { return pass_number_; }
  [[nodiscard]] int64_t loads() const noexcept { return loads_; }
  /// Why the pass is void on all ranks; the group is whole.
  [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }
  /// Throws what broke the group inside a hook, whatever the hook made of it.
  void check_unbroken() const;

  /// Collective: `header` becomes that of all ranks. Throws MISMATCH if they are in passes of different models.
  void combine_headers(collective::BucketHeader& header, uint64_t plan_hash);
  /// Collective: do all ranks the same? If not, or if one failed (its text is `failed`), failure() is set and the answer is
  /// no.
  [[nodiscard]] bool step(const Step& mine, const std::string& failed = {});
  /// Runs a collective of the transport; an error of it is remembered.
  template <class Body>
  void run_collective(Body&& body) {
    remember(try_to(body));
  }

 private:
  struct Frame {
    Step step;
    char text[480];
  };
  static_assert(sizeof(Step) == 32 && sizeof(Frame) == 512);

  void remember(const std::optional<Error>& error);
  void judge();

  const group::Channel& channel_;
  group::Group& group_;
  Hook hook_;
  ddp_reduce reduce_;
  std::byte* contents_ = nullptr;
  std::byte* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  std::vector<uint64_t> header_;   // this rank's, as it is sent
  std::vector<uint64_t> headers_;  // of all ranks
  Frame frame_{};
  std::vector<Frame> frames_;
  std::optional<Error> failure_;
  std::optional<Error> broken_;
  int64_t pass_number_ = 1;
  int64_t loads_ = 0;
};

}  // namespace ddp::parts
