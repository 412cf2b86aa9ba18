// SPDX-License-Identifier: Apache-2.0
// One backward pass after another: gradients are marked, buckets that are complete start in plan order (buckets.hpp), an
// optimizer may take part (optimizer_stage.hpp), and the end returns the common result of the ranks.
//
// Cost: a mark is two atomic operations and, while buckets are under way in caller mode, a bounded share of their work;
// nothing is allocated.
// Threads: mark_* from any; the rest from one thread at a time.
// Tested by conformance/pass_threads_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/backward.h"
#include "ddp/model.h"
#include "ddp/uneven.h"
#include "exchange/progress_queue.hpp"
#include "group/channels.hpp"
#include "group/group.hpp"
#include "pass/attached_optimizer.hpp"
#include "pass/attendance.hpp"
#include "pass/buckets.hpp"
#include "pass/hook.hpp"
#include "pass/marks.hpp"
#include "pass/meter.hpp"
#include "pass/pass_events.hpp"
#include "pass/results.hpp"

namespace ddp::pass {

class Pass {
 public:
  using Role = Attendance::Role;

  /// Collective: prepares every bucket. Gradients in `table` have their addresses.
  Pass(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan plan, uint64_t plan_hash,
       const Hook& hook);

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
  /// Announce this rank's next call and get those of the others (uneven_inputs). `joined`: this rank only answers.
  /// Collective, waits.
  const JoinHeader& call_roll(Call call, int32_t argument, bool joined);
  [[nodiscard]] Attendance& attendance() noexcept { return attendance_; }
  /// Of the global batch, on this rank.
  [[nodiscard]] Parts& parts() noexcept { return buckets_.parts(); }
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// For a model whose buckets are pulled (pass/hooked_buckets.hpp). `rest`: no more marks come on this rank.
  [[nodiscard]] std::shared_ptr<HookBucket> next_bucket(bool rest);
  void finish_bucket(const std::optional<Error>& problem);

  /// The model is destroyed while the pass is open, and the group was broken for that: releases the objects that took part.
  void leave_open() noexcept;

  /// False if the others reach into the gradient's memory, so that it cannot move.
  [[nodiscard]] bool set_address(int32_t index, std::byte* data);
  [[nodiscard]] bool is_marked(int32_t index) const noexcept { return marks_.is_marked(index); }

  /// An optimizer takes part in the passes that follow, as long as it lives.
  void attach(std::weak_ptr<BlockUpdate> update);
  /// The optimizer's part; NULL without an optimizer.
  [[nodiscard]] OptimizerStage* stage() const noexcept { return optimizer_.stage(); }
  /// Parameters and state are others now: a step that the last pass made is over.
  void forget_made_step() noexcept;
  /// What hooks remember of earlier passes begins anew.
  void forget_hooks() noexcept;
  /// The gradients were set to zero: nothing that was accumulated is left.
  void forget_gradients() noexcept;

  [[nodiscard]] Results& results() noexcept { return results_; }
  [[nodiscard]] Meter& meter() noexcept { return meter_; }
  [[nodiscard]] std::string describe_plan() const;

 private:
  void require_open() const;
  void require_step() const;
  void mark(int32_t index, Marks::Mark what, void* stream);
  /// Elements first to end of the gradient are written, and `ranges` by now: which pieces became complete? True: a bucket
  /// may go.
  [[nodiscard]] bool count_ranges(int32_t index, int64_t first, int64_t end, const MarkedRanges& ranges, void* stream);
  void poke();
  void start_complete_buckets();
  void start_bucket(size_t index);
  void start_rest(void* stream = nullptr);
  /// Refuses what comes too late for the pass that is open.
  template <class Change>
  void before_first_bucket(const char* refusal, const Change& change);
  [[nodiscard]] bool is_void() const noexcept;
  void end_local();
  void end_part();
  void end_reduce(void* stream);
  void reduce(void* stream);
  void settle();
  void take_headers();
  void take_used() noexcept;
  void report_missing();

  const group::Channel channel_;
  const ddp_model_options options_;
  Buckets buckets_;
  Marks marks_;
  Attendance attendance_;
  AttachedOptimizer optimizer_;
  Results results_;
  Meter meter_;
  PassEvents events_;
  collective::ProgressQueue queue_;
  std::optional<group::Channel::Open> opened_;  // while a pass is open
  std::atomic<bool> open_{false};
  ddp_pass mode_ = DDP_PASS_REDUCE;
  bool incomplete_ = false;     // some rank missed a gradient in this pass
  bool others_stepped_ = true;  // of a pass that this rank only answered
};

}  // namespace ddp::pass
