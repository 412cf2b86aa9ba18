// SPDX-License-Identifier: Apache-2.0
// How an optimizer takes part in a pass, decided by one pure function. Every rank passes the same inputs, so all ranks
// decide alike without a message. parts/README.md, "Fused and sharded steps", has the table. Tested by
// unit/parts/step_plan_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::parts {

/// What an optimizer asks for. `whole_gradient` may change between passes.
struct StepRequest {
  bool sharded = false;         // each rank keeps state for its own slice, changes only that, and gives the values
  bool in_backward = false;     // a step follows the reduction of its bucket, if possible
  bool whole_gradient = false;  // the whole gradient is needed first: clipping by norm, non-finite check, dynamic loss scale
  bool whole_tensors = false;   // the rule changes a parameter as a whole
  bool divides = false;         // on a GPU its blocks may find gradients that are sums, and make means of them; all of them
  bool divides_late = false;    // updates may divide at ddp_optimizer_step too: the gradients are not used before
  bool late_values = false;     // values of a step at ddp_optimizer_step may come after it

  /// Does it take part in passes at all? The same as long as the optimizer lives.
  [[nodiscard]] bool takes_part() const noexcept { return sharded || in_backward || divides_late; }
  /// Is the step made by the pass, and not by ddp_optimizer_step?
  [[nodiscard]] bool in_pass() const noexcept { return in_backward && !whole_gradient; }
};

/// Where the pass runs: the hook and the options of its model, one bucket, and what the group can do with that.
struct StepSetting {
  bool reduces_copy = false;        // a copy of some bucket is reduced: by a hook, which may fail, or as F32
  bool partial_allowed = false;     // what a rank contributes is known only at the end of the pass
  bool on_gpu = false;              // the bucket
  bool mixed = false;               // some buckets are on a GPU, some are not
  bool can_reduce_scatter = false;  // Group::can, where the bucket is
  bool can_fuse = false;            // the same: reduce-scatter, step and all-gather in one exchange
  bool uneven = false;              // a rank may only answer, with old values

  [[nodiscard]] bool some_on_gpu() const noexcept { return on_gpu || mixed; }
};

/// The exchanges of a bucket that passes may use, in addition to its ordinary reduction. They are prepared once.
struct StepExchanges {
  bool reduce_scatter = false;
  bool all_gather = false;
  bool fused = false;  // both, with the step in between
};
[[nodiscard]] StepExchanges step_exchanges(const StepRequest& request, const StepSetting& setting) noexcept;

/// What happens to a bucket in a pass that reduces, and afterwards.
struct StepPlan {
  enum class Reduction { kEverywhere, kToSlices };
  enum class When {
    kAtOptimizerStep,  // ddp_optimizer_step makes it
    kBehindBucket,     // the next operation behind the bucket's reduction; of whole tensors, of the last bucket with a piece
    kInExchange,       // in one exchange with the reduction
    kAtEndOfPass       // when all buckets are reduced
  };
  enum class Values { kNobody, kAllGather, kFusedExchange };  // who gives the new values to the other ranks
  enum class Norm { kAtStep, kWhileReduced };                 // when the squares of the gradient are summed, if they are

  Reduction reduction = Reduction::kEverywhere;
  When when = When::kAtOptimizerStep;
  Values values = Values::kNobody;
  Norm norm = Norm::kAtStep;
  bool leaves_sum = false;  // the reduction does not divide where it would need a pass over memory for it: the update does

  /// Do buckets change before the pass is known to be good? The same for all buckets of a pass.
  [[nodiscard]] bool follows() const noexcept { return when == When::kBehindBucket || when == When::kInExchange; }
  [[nodiscard]] bool operator==(const StepPlan&) const noexcept = default;
};
/// `prepared`: the exchanges are; in the first pass they are not.
[[nodiscard]] StepPlan plan_step(const StepRequest& request, const StepSetting& setting, bool prepared) noexcept;

/// How far the step of a pass, or of ddp_optimizer_step, has come.
class StepState {
 public:
  enum class Is {
    kNone,      // no step is under way, and none waits for ddp_optimizer_step
    kPending,   // blocks change, or will
    kMade,      // the pass has made it; ddp_optimizer_step has not been called yet
    kTakenBack  // the pass is void or the step failed: nothing of it is left
  };

  /// A pass begins.
  void begin_pass(bool steps) noexcept {
    is_ = steps ? Is::kPending : Is::kNone;
    gives_ = false;
  }
  /// A step begins outside of backward.
  void begin_step() noexcept {
    is_ = Is::kPending;
    gives_ = false;
  }
  /// From now on ranks may write values of the step into each other's parameters.
  void give() noexcept { gives_ = true; }
  [[nodiscard]] bool gives() const noexcept { return gives_; }
  /// ddp_optimizer_step has made it.
  void end_step() noexcept { is_ = Is::kNone; }
  /// The pass has made it.
  void make() noexcept { is_ = Is::kMade; }
  void take_back() noexcept {
    if (is_ == Is::kPending) is_ = Is::kTakenBack;
  }
  /// ddp_optimizer_step gets it, once.
  [[nodiscard]] bool take_made() noexcept {
    if (is_ != Is::kMade) return false;
    is_ = Is::kNone;
    return true;
  }

  [[nodiscard]] bool is(Is state) const noexcept { return is_ == state; }

 private:
  Is is_ = Is::kNone;
  bool gives_ = false;
};

}  // namespace ddp::parts
