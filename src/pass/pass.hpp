// SPDX-License-Identifier: Apache-2.0
// One backward pass after another: gradients are marked, buckets that are complete start in plan order (buckets.hpp), and
// the end says what the ranks found out. What else happens in a pass is done by parts (part.hpp), which are asked in their
// order.
//
// Cost: a mark is two atomic operations and, while buckets are under way in caller mode, a bounded share of their work;
// nothing is allocated.
// Threads: mark_* from any; the rest from one thread at a time.
// Tested by conformance/pass_test.cpp and unit/pass/part_order_test.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/backward.h"
#include "ddp/model.h"
#include "exchange/progress_queue.hpp"
#include "exchange/ranks.hpp"
#include "pass/bucket_rules.hpp"
#include "pass/buckets.hpp"
#include "pass/marks.hpp"
#include "pass/part.hpp"

namespace ddp::pass {

// What the passes of a model have come to: what the gradients in memory are, which parameters were used, and what may not go
// on.
// Threads: one at a time.
class Results {
 public:
  enum class Gradients {
    kOwn,          // the program's: no pass has ended, or they were set to zero after one that left nothing to use
    kFinal,        // those of a pass that reduced, or of a LOCAL one, or reduced by the program itself
    kAccumulated,  // not reduced yet
    kVoid          // of a pass that failed or was abandoned
  };

  explicit Results(size_t parameters) : of_(parameters) {}

  [[nodiscard]] Gradients gradients() const noexcept { return gradients_; }
  /// Passes that ended well with final gradients, and gradients that the program has reduced itself.
  [[nodiscard]] int64_t final_passes() const noexcept { return final_passes_; }
  /// Is this gradient complete on each rank in its own slice only?
  [[nodiscard]] bool is_sliced(int32_t index) const noexcept { return gradients_ == Gradients::kFinal && at(index).sliced; }
  /// Is it a sum, which the step divides?
  [[nodiscard]] bool is_sum(int32_t index) const noexcept { return gradients_ == Gradients::kFinal && at(index).sum; }
  /// Is one of them?
  [[nodiscard]] bool are_sums() const noexcept {
    return gradients_ == Gradients::kFinal && std::any_of(of_.begin(), of_.end(), [](const Of& each) { return each.sum; });
  }
  /// Has a pass with final gradients ended well?
  [[nodiscard]] bool has_reduced() const noexcept { return final_passes_ > 0; }
  /// By any rank in the last one; all are before the first.
  [[nodiscard]] bool was_used(int32_t index) const noexcept { return at(index).used; }
  /// A pass was captured into a graph: a launch of it makes gradients that are not recorded here.
  [[nodiscard]] bool was_captured() const noexcept { return was_captured_; }
  /// There was a LOCAL pass: ranks may hold different values and states.
  [[nodiscard]] bool went_alone() const noexcept { return went_alone_; }
  /// A void pass has updated a part of parameters and optimizer for good (no undo).
  [[nodiscard]] bool is_torn() const noexcept { return torn_; }

  /// A pass has ended with gradients that are not final.
  void set(Gradients gradients) noexcept { gradients_ = gradients; }
  /// A pass has succeeded; use() returns which gradients were used, and leave() what they are, unless they are whole means.
  void finish() noexcept {
    gradients_ = Gradients::kFinal;
    ++final_passes_;
  }
  /// All gradients are whole means, until leave() says otherwise of one.
  void leave_whole() noexcept {
    for (Of& each : of_) each.sliced = each.sum = false;
  }
  /// What a bucket with a part of this gradient has left: the mean in each rank's own slice only, a sum.
  void leave(int32_t index, bool sliced, bool sum) noexcept {
    Of& of = of_[static_cast<size_t>(index)];
    of.sliced = of.sliced || sliced;
    of.sum = of.sum || sum;
  }
  /// The program has reduced all of them itself.
  void take_reduced() noexcept {
    std::fill(of_.begin(), of_.end(), Of{});
    finish();
  }
  /// The step has divided it.
  void divide(int32_t index) noexcept { of_[static_cast<size_t>(index)].sum = false; }
  void use(int32_t index, bool used) noexcept { of_[static_cast<size_t>(index)].used = used; }
  void capture() noexcept { was_captured_ = true; }
  void go_alone() noexcept { went_alone_ = true; }
  void tear() noexcept { torn_ = true; }
  [[nodiscard]] bool take_torn() noexcept { return std::exchange(torn_, false); }
  /// The earlier passes are those of another group; the contents of the gradients are invalid.
  void go_on_from(int64_t final_passes) noexcept {
    final_passes_ = final_passes;
    if (final_passes > 0) gradients_ = Gradients::kVoid;
  }
  /// The gradients were set to zero: nothing that was accumulated is left.
  void forget_gradients() noexcept {
    if (gradients_ != Gradients::kFinal) gradients_ = Gradients::kOwn;
  }

 private:
  /// A gradient behind the last pass.
  struct Of {
    bool used = true;
    bool sliced = false;
    bool sum = false;
  };
  [[nodiscard]] const Of& at(int32_t index) const noexcept { return of_[static_cast<size_t>(index)]; }

  std::vector<Of> of_;  // by parameter
  Gradients gradients_ = Gradients::kOwn;
  int64_t final_passes_ = 0;
  bool was_captured_ = false;
  bool torn_ = false;
  bool went_alone_ = false;
};

class Pass {
 public:
  /// What the passes of a model are made of; what is referred to outlives them.
  struct Of {
    const collective::Ranks& ranks;
    const Parameters& table;  // gradients have their addresses
    const ddp_model_options& options;
    const Plan& plan;
    uint64_t plan_hash;
    BucketRules rules;
    std::vector<PassPart*> parts;  // in their order
  };
  /// Collective: prepares every bucket.
  explicit Pass(const Of& of);
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

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
  /// No more marks come on this rank: all buckets that are left start. What was not marked was last written on `stream`.
  void start_rest(void* stream = nullptr);
  /// Throws INVALID_STATE, `refusal`, once the first bucket of the open pass has started.
  void require_not_started(const char* refusal);
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
  /// Throws INVALID_STATE unless a pass is open.
  void require_open() const;
  /// Of the pass that is open, or was last.
  [[nodiscard]] ddp_pass mode() const noexcept { return now_.mode; }

  /// The model is destroyed while the pass is open, and the group was broken for that: releases the objects that took part.
  void leave_open() noexcept;

  /// False if the others reach into the gradient's memory, so that it cannot move.
  [[nodiscard]] bool set_address(int32_t index, std::byte* data) { return buckets_.set_address(index, data); }
  [[nodiscard]] bool is_marked(int32_t index) const noexcept { return marks_.is_marked(index); }
  /// The parameters whose gradients this rank has accumulated since the last reduction, and that this is one of them.
  [[nodiscard]] std::vector<int32_t> accumulated() const { return marks_.accumulated(); }
  void accumulate(int32_t index) noexcept { marks_.accumulate(index); }
  /// Values are read or changed next.
  void await_values();
  /// Gradients or values have changed outside of passes.
  void changed(Change what) noexcept;

  [[nodiscard]] const Parameters& table() const noexcept { return of_.table; }
  [[nodiscard]] Results& results() noexcept { return results_; }
  [[nodiscard]] collective::ProgressQueue& queue() noexcept { return queue_; }
  /// Of all parts and of the model's options.
  [[nodiscard]] Traits traits() const noexcept;
  /// What a bucket asks of the transport, with the gradients where they are now.
  [[nodiscard]] collective::BucketSpec describe(size_t bucket) const { return buckets_.describe(bucket); }
  [[nodiscard]] std::string describe_plan() const;

 private:
  void mark(int32_t index, Marks::Mark what, void* stream);
  /// Elements first to end of the gradient are written, and `ranges` by now: which pieces became complete? True: a bucket
  /// may go.
  [[nodiscard]] bool count_ranges(int32_t index, int64_t first, int64_t end, const MarkedRanges& ranges, void* stream);
  void tell_tracer(int32_t index) {
    if (PassPart* const tracer = tracer_.load(std::memory_order_relaxed)) tracer->marked(index, buckets_.places(index));
  }
  void poke();
  void begin_parts();
  void start_complete_buckets();
  void start_bucket(size_t index);
  void fill(size_t index, collective::BucketHeader& mine);
  [[nodiscard]] MissingGradients missing() const;
  void end_local(Outcome& outcome);
  void end_part();
  void end_reduce(void* stream, Outcome& outcome);
  [[nodiscard]] bool reduce(void* stream);
  [[nodiscard]] Verdict read_headers();
  void take_results(bool is_void);
  void fail(const Error& error);
  void report();
  void close(Outcome outcome) noexcept;

  const Of of_;
  const collective::Ranks::Place place_;
  Buckets buckets_;
  Marks marks_;
  Results results_;
  collective::ProgressQueue queue_;
  std::optional<collective::OpenPass> opened_;  // while a pass is open
  std::atomic<bool> open_{false};
  std::atomic<PassPart*> tracer_{nullptr};  // the part that traces the open pass; NULL: none does
  /// The pass that is open, or was last.
  struct {
    ddp_pass mode = DDP_PASS_REDUCE;
    Role role = Role::kTraining;
    std::string reason;       // of a rank that abandons it
    bool incomplete = false;  // some rank missed a gradient
    bool is_void = false;     // on all ranks
    bool nobody = false;      // no rank contributed
  } now_;
};

}  // namespace ddp::pass
