// SPDX-License-Identifier: Apache-2.0
// The optimizer's part in a model's passes: reduce-scatter to slices, updates of slices or buckets, all-gather
// of the values. StepPlan (step_plan.hpp) decides what is done with a bucket, and when. A step that the pass makes is
// counted by the pass; ddp_optimizer_step then changes nothing. If the pass fails, every rank undoes its changes.
//
// The transport's operations are prepared at the end of the first pass (its reduction is an ordinary one), so that attaching
// an optimizer needs no other rank. All ranks attach the same; if not, the stamps differ and the group ends with MISMATCH.
// Cost: nothing is allocated after the first pass. Threads: as Pass.
// Tested by conformance/fused_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/exact_sum.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "core/slices.hpp"
#include "exchange/progress_queue.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/group.hpp"
#include "parts/step/block_update.hpp"
#include "parts/step/late_values.hpp"
#include "parts/step/step_plan.hpp"

namespace ddp::parts {

/// What a bucket asks of the transport, with the gradients where they are now.
using DescribeBucket = std::function<collective::BucketSpec(size_t bucket)>;

class OptimizerStage {
 public:
  /// `plan`: of the model, the buckets with the optimizer's parameters; all numbers of buckets are places in it. `setting`:
  /// the hook and the options of the model; the rest is filled in here.
  OptimizerStage(const group::Channel& channel, const Parameters& table, Plan plan, BlockUpdate& update,
                 DescribeBucket describe, StepSetting setting);
  ~OptimizerStage();
  OptimizerStage(const OptimizerStage&) = delete;
  OptimizerStage& operator=(const OptimizerStage&) = delete;

  [[nodiscard]] const BlockUpdate& update() const noexcept { return update_; }
  [[nodiscard]] bool is_sharded() const noexcept { return request_.sharded; }
  /// The owners of the parameters, by number: unless sharded, each rank owns all.
  [[nodiscard]] const Ownership& ownership() const noexcept { return owners_.all.parameters; }
  /// This rank's parts of a parameter: one for each bucket in which it owns some of it.
  [[nodiscard]] OwnedParts owned(int32_t index) const noexcept { return ownership().parts(channel_.group().rank(), index); }

  /// May each rank keep a slice of what a pass changes, because the ranks can take it back together? For the memory of GPUs.
  /// They cannot when the group is broken, or some rank only answers; nor must they, when the program's rule fails on one.
  [[nodiscard]] bool may_keep_slices() const noexcept { return owners_.kept.has_value(); }
  /// This rank's slices of a parameter, if so.
  [[nodiscard]] OwnedParts kept(int32_t index) const noexcept {
    return owners_.kept->parameters.parts(channel_.group().rank(), index);
  }

  // A REDUCE pass, in this order.
  void begin();
  [[nodiscard]] collective::BucketOperation& reduction(size_t bucket, collective::BucketOperation& usual) noexcept;
  /// After the reduction of the bucket was pushed.
  void follow(size_t bucket, collective::BucketOperation& reduction, collective::ProgressQueue& queue);
  /// What comes on the communication stream comes after the updates of the pass.
  void join_updates();
  /// All buckets are reduced; `is_void`: no step follows from them. Collective. False: parameters are updated in part, for
  /// good. The step that the pass has made does not count yet.
  [[nodiscard]] bool end(bool is_void);
  /// It counts, if there is one: those of the model's other optimizers are made too.
  void count();
  /// Why the step that was to follow was not made, on all ranks; then it was taken back.
  [[nodiscard]] std::optional<Error> take_failure() noexcept { return std::exchange(went_.failure, std::nullopt); }
  /// As end(), on a rank that only answers and makes no step. False: the others' step failed.
  [[nodiscard]] bool attend(bool is_void);
  /// The pass failed with the group.
  void give_up();

  /// The blocks of a step, on the own slices, and the all-gather of their values. Collective if sharded. `stream`: that of
  /// tensors on a GPU. Gives why the step failed, if the program's rule did; on all ranks, if `collective`. `function`
  /// begins the text.
  [[nodiscard]] std::optional<Error> run_step(const char* function, bool collective, void* stream = nullptr);
  /// True once after a pass in which the step was made already.
  [[nodiscard]] bool take_made_step() noexcept { return step_.take_made(); }
  [[nodiscard]] bool step_is_made() const noexcept { return step_.is(StepState::Is::kMade); }
  /// Is a gradient promised to be complete in its owner's slice only? Also where a bucket is reduced everywhere, so that a
  /// program does not depend on what a transport or a hook does.
  [[nodiscard]] bool reduces_to_slices() const noexcept {
    return is_sharded() && exchanges_ == Exchanges::kPrepared && channel_.group().size() > 1;
  }

  /// After a pass: are some gradients sums, which the step divides? And those of this bucket?
  [[nodiscard]] bool leaves_sums() const noexcept;
  [[nodiscard]] bool leaves_sum(size_t bucket) const noexcept;

  /// The terms of the 2-norm of the own slices of all used parameters, if they were taken while the gradients were reduced.
  [[nodiscard]] const std::optional<ExactSum>& norm() const noexcept { return norm_; }
  /// The gradients were changed after the reduction.
  void forget_norm() noexcept { norm_.reset(); }

  [[nodiscard]] bool set_address(size_t bucket, int32_t piece, std::byte* data) noexcept;

  /// Values that come after their step; NULL: they come with it.
  [[nodiscard]] LateValues* late_values() const noexcept { return late_.get(); }

 private:
  struct Part;
  struct Owners {
    PlanOwnership all;
    std::optional<PlanOwnership> kept;  // slices, where every rank may keep one
  };
  enum class Exchanges { kNotPrepared, kPrepared };

  [[nodiscard]] StepSetting setting_of(bool on_gpu) const noexcept;
  [[nodiscard]] Owners make_owners() const;
  void find_completed();
  [[nodiscard]] const StepPlan& plan_of(size_t bucket) const noexcept;
  void make_plans() noexcept;
  void prepare();
  void publish(bool restored);
  void work_on_own();
  [[nodiscard]] bool is_given_away() const noexcept { return step_.gives() && channel_.group().size() > 1; }
  [[nodiscard]] bool take_back();
  void give_kept();
  void give_kept(size_t bucket, ddp_dtype dtype, const std::function<std::byte*(int32_t parameter)>& array, bool owned);
  [[nodiscard]] std::optional<Error> make_step(const char* function, bool collective, void* stream);
  [[nodiscard]] std::optional<Error> settle(const char* function, bool collective, void* stream);
  void update_now(size_t bucket);
  void work_on_gpu();
  template <class Which>
  void work_by_divisor(const Which& which, void* stream);
  void refuse_capture() const;
  [[nodiscard]] const collective::BucketHeader& header_of_all(size_t bucket) noexcept;
  [[nodiscard]] void* gpu_stream() const;

  const group::Channel& channel_;
  const Parameters& table_;
  const Plan plan_;
  BlockUpdate& update_;
  DescribeBucket describe_;
  StepSetting setting_;  // of the first bucket
  StepRequest request_;  // of the last pass
  const Owners owners_;
  StepPlan pass_plan_;                        // of the last pass: what all of its buckets have in common
  std::vector<std::unique_ptr<Part>> parts_;  // by bucket
  Exchanges exchanges_ = Exchanges::kNotPrepared;
  StepState step_;
  std::optional<ExactSum> norm_;  // the terms of the own slices, if they were taken in the last pass
  struct {
    std::optional<Error> problem;  // of a step within this pass
    std::optional<Error> failure;  // of the program's rule in it
  } went_;
  std::unique_ptr<LateValues> late_;
};

}  // namespace ddp::parts
