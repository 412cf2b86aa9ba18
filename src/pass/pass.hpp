// One backward pass after another: which gradients are complete, which bucket may go, and what the ranks found out about it.
//
// Order is fixed: buckets are started in plan order by a cursor; a later bucket that is full early waits for its turn. All
// ranks thus issue the same sequence without talking about it (src/README.md, "Why order is fixed").
// Cost: a mark is two atomic operations and, while buckets are under way in caller mode, a bounded share of their work;
// nothing is allocated.
// Threads: mark_* from any; the rest from one thread at a time.
// Tested by conformance/pass_threads_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/progress_queue.hpp"
#include "collective/transport.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/backward.h"
#include "ddp/model.h"
#include "ddp/uneven.h"
#include "group/channels.hpp"
#include "group/group.hpp"
#include "pass/hook.hpp"
#include "pass/hooked_buckets.hpp"
#include "pass/join_header.hpp"
#include "pass/marked_ranges.hpp"
#include "pass/optimizer_stage.hpp"

namespace ddp::pass {

class Pass {
 public:
  /// Collective: prepares every bucket. Gradients in `table` have their addresses.
  Pass(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan plan, uint64_t plan_hash,
       const Hook& hook);

  /// How this rank takes part. A rank that skips or has joined sends nothing and receives the result.
  enum class Role { kTraining, kSkipping, kJoined, kAbandoning };

  void begin(ddp_pass mode, Role role = Role::kTraining);
  void mark_ready(int32_t index, void* stream = nullptr);
  /// Elements `first` to first + count, as the program counts them; the gradient is marked when all of them are.
  void mark_range_ready(int32_t index, int64_t first, int64_t count, void* stream = nullptr);
  void mark_unused(int32_t index);
  /// Throws; the pass is over whatever the result.
  void end(void* stream = nullptr);
  /// End the open pass without its remaining gradients. False: there were none left, so it ended well. Throws only what
  /// breaks the group.
  [[nodiscard]] bool abandon(std::string reason, void* stream = nullptr);
  /// For the passes that reduce; refused once the first bucket of such a pass has started.
  void set_weight(double weight);
  void set_last();
  /// Tell the other ranks what comes and hear what they do (uneven_inputs). `joined`: this rank only answers. Collective,
  /// waits.
  const JoinHeader& call_roll(Call call, int32_t argument, bool joined);
  /// Passes that were opened to reduce, the same on all ranks.
  [[nodiscard]] int64_t rounds() const noexcept { return rounds_; }
  /// Those that ended well, the same on all ranks.
  [[nodiscard]] int64_t reduced_passes() const noexcept { return stats_.passes; }
  /// From now on (-1: no longer) this rank only answers, so the group refuses what it has no part in.
  void set_absent(int32_t joined_rank);
  [[nodiscard]] int32_t absent_rank() const noexcept { return absent_rank_; }
  void fill_report(ddp_pass_report& report) const noexcept;
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// For a model whose buckets are pulled (pass/hooked_buckets.hpp). `rest`: no more marks come on this rank.
  [[nodiscard]] std::shared_ptr<HookBucket> next_bucket(bool rest);
  void finish_bucket(const std::optional<Error>& problem);

  /// The model is destroyed while the pass is open, and the group was broken for that: whoever took part is let go.
  void leave_open() noexcept;

  /// False if the others reach into the gradient's memory, so that it cannot move.
  [[nodiscard]] bool set_address(int32_t index, std::byte* data);
  [[nodiscard]] bool is_marked(int32_t index) const noexcept;

  /// An optimizer takes part in the passes that follow, as long as it lives.
  void attach(std::weak_ptr<BlockUpdate> update);
  /// The optimizer's part; NULL if there is none.
  [[nodiscard]] OptimizerStage* stage() const noexcept { return attached_.expired() ? nullptr : stage_.get(); }

  /// What the gradients in memory are.
  enum class Gradients {
    kOwn,          // the program's: no pass has ended, or they were set to zero after one that left nothing to use
    kFinal,        // those of a pass that reduced, or of a LOCAL one
    kAccumulated,  // not reduced yet
    kVoid          // of a pass that failed or was abandoned
  };
  [[nodiscard]] Gradients gradients() const noexcept { return gradients_; }
  /// A pass was captured into a graph: a launch of it makes gradients that nobody here hears of.
  [[nodiscard]] bool was_captured() const noexcept { return was_captured_; }
  /// Passes that ended well with final gradients.
  [[nodiscard]] int64_t final_passes() const noexcept { return final_passes_; }
  /// Each rank's gradients are complete in its own slice only.
  [[nodiscard]] bool are_sliced() const noexcept { return gradients_ == Gradients::kFinal && sliced_; }
  /// The gradients were set to zero: nothing that was accumulated is left.
  void forget_gradients() noexcept;
  /// Parameters and state are others now: a step that the last pass made is over.
  void forget_made_step() noexcept;
  /// What hooks remember of earlier passes begins anew.
  void forget_hooks() noexcept;
  /// A void pass has updated a part of parameters and optimizer for good (no undo).
  [[nodiscard]] bool is_torn() const noexcept { return torn_; }
  [[nodiscard]] bool take_torn() noexcept { return std::exchange(torn_, false); }
  [[nodiscard]] bool step_is_made() const noexcept { return stage_ != nullptr && stage_->step_is_made(); }

  [[nodiscard]] bool has_reduced() const noexcept { return has_reduced_; }
  [[nodiscard]] bool was_used(int32_t index) const noexcept { return used_[static_cast<size_t>(index)] != 0; }
  void fill_stats(ddp_model_stats& stats) const noexcept;
  [[nodiscard]] std::string describe_plan() const;

 private:
  // Of Participation::flags: the rank has no batch for the next pass; and behind that a bit for each rank that does not
  // contribute.
  static constexpr uint64_t kLast = 1;
  static constexpr uint64_t kFirstRank = 2;
  static constexpr int32_t kNamedRanks = 63;
  enum class Mark : uint32_t { kNone = 0, kReady = 1, kUnused = 2, kPartly = 3 };
  struct Bucket {
    std::unique_ptr<collective::BucketOperation> operation;
    collective::BucketOperation* active = nullptr;  // that of this pass
    std::atomic<int32_t> pending{0};                // pieces of this pass that are still to come
    collective::BucketHeader header;
    std::mutex streaming;        // guards streams
    std::vector<void*> streams;  // of a GPU, on which its gradients were written since the last reduction
  };
  [[nodiscard]] collective::BucketSpec describe_bucket(size_t bucket) const;
  void mark(int32_t index, Mark what, void* stream);
  [[nodiscard]] bool count_mark(size_t bucket) noexcept;
  void poke();
  [[nodiscard]] int64_t unit_of(int32_t index) const noexcept;
  /// Some of its ranges are marked in this pass, and some are not.
  [[nodiscard]] bool is_partly_marked(int32_t index) const noexcept;
  [[nodiscard]] bool has_partly_marked(const PlannedBucket& bucket) const noexcept;
  /// Elements first to end of the gradient are written: which pieces became complete? True: a bucket may go.
  [[nodiscard]] bool count_ranges(int32_t index, int64_t first, int64_t end, void* stream);
  /// The parameter's name and, if it is marked in part, what is missing.
  [[nodiscard]] std::string missing_of(int32_t index) const;
  void add_stream(size_t index, void* stream);
  void start_ready_buckets();
  void start_bucket(size_t index);
  [[nodiscard]] collective::Participation participation() const noexcept;
  [[nodiscard]] bool has_started() noexcept;
  void start_rest(void* stream = nullptr);
  /// Is what a rank contributes known only when the pass ends?
  [[nodiscard]] bool partial_allowed() const noexcept {
    return options_.unused == DDP_UNUSED_ALLOW || options_.divisor == DDP_DIVISOR_WEIGHTS;
  }
  void require_step() const;
  /// The marks of the pass that ends become part of what is accumulated, or are forgotten.
  void settle_marks(bool keep) noexcept;
  void take_headers();
  [[nodiscard]] bool is_void() const noexcept {
    return incomplete_ || all_.contributors == 0 || (hooked_ != nullptr && hooked_->has_failed());
  }
  void end_reduce(void* stream);
  void take_used() noexcept;
  void report_missing();
  void end_local();
  void finish_stats() noexcept;
  [[nodiscard]] uint32_t mark_value(Mark what) const noexcept { return epoch_ << 2 | static_cast<uint32_t>(what); }

  group::Group& group_;
  const group::Channel channel_;
  const Parameters& table_;
  const ddp_model_options options_;
  const Hook hook_;
  const Plan plan_;
  const uint64_t plan_hash_;
  const bool on_gpu_;                                  // some bucket is
  const std::vector<std::vector<PiecePlace>> places_;  // by parameter
  std::unique_ptr<HookedBuckets> hooked_;              // of a hook that works on copies
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<std::atomic<uint32_t>> marks_;  // epoch and Mark, by parameter
  mutable std::mutex ranging_;                // guards ranges_
  std::vector<MarkedRanges> ranges_;          // by parameter, of one that is marked range by range
  static constexpr uint8_t kBefore = 1;       // in passes that accumulated since the last reduction
  static constexpr uint8_t kNow = 2;          // in the open pass
  std::vector<uint8_t> contributes_;          // by parameter
  std::vector<uint8_t> used_;                 // by any rank in the last reduction that ended well

  std::atomic<bool> open_{false};
  ddp_pass mode_ = DDP_PASS_REDUCE;
  uint32_t epoch_ = 0;
  bool has_reduced_ = false;
  Gradients gradients_ = Gradients::kOwn;
  int64_t final_passes_ = 0;
  bool was_captured_ = false;
  bool sliced_ = false;  // the last pass that ended well reduced to slices
  bool torn_ = false;
  bool incomplete_ = false;  // some rank missed a gradient in this pass
  Role role_ = Role::kTraining;
  std::string reason_;  // of abandoning
  double weight_ = 1;
  bool last_ = false;                                                  // this rank has no batch after the pass
  collective::Participation all_ = collective::Participation::none();  // of the last pass that reduced
  int32_t absent_rank_ = -1;
  int64_t rounds_ = 0;
  std::unique_ptr<JoinHeader> join_header_;  // uneven_inputs

  std::mutex starting_;  // guards next_ and the order of starting
  size_t next_ = 0;
  collective::ProgressQueue queue_;
  std::optional<group::Channel::Open> opened_;  // while a pass is open

  std::weak_ptr<BlockUpdate> attached_;
  std::shared_ptr<BlockUpdate> held_;       // while a pass is open
  std::unique_ptr<OptimizerStage> stage_;   // of `attached_`
  OptimizerStage* active_stage_ = nullptr;  // it takes part in this pass

  struct Times {
    int64_t begin_ns = 0;
    int64_t first_start_ns = 0;
    int64_t drained_ns = 0;  // of the caller inside end()
  } times_;                  // of the open pass
  int64_t sent_before_ = 0;  // by the transport, before the pass
  ddp_model_stats stats_{};
};

}  // namespace ddp::pass
