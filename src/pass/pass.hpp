// SPDX-License-Identifier: Apache-2.0
// One backward pass after another: gradients are marked, buckets that are complete start in plan order (buckets.hpp), and
// the end says what the ranks found out. What else happens in a pass is done by parts (part.hpp), which are asked in their
// order.
//
// Cost: a mark is two atomic operations and, while buckets are under way in caller mode, a bounded share of their work;
// nothing is allocated.
// Threads: mark_* from any; the rest from one thread at a time.
// Tested by conformance/pass_threads_test.cpp and unit/pass/part_order_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
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
#include "pass/results.hpp"

namespace ddp::pass {

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
