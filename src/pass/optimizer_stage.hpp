// The part of a model's passes that an optimizer takes: reduce-scatter to slices, updates of slices or buckets, all-gather
// of the values.
//
//   sharded:    a pass reduces every bucket to slices; a step updates the own slices and publishes them, bucket by bucket.
//   immediate:  the step of a bucket follows its reduction at once, within the pass, which also counts it;
//   ddp_optimizer_step then changes
//               nothing. If the pass turns out void, every rank takes its changes back.
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

#include "collective/progress_queue.hpp"
#include "collective/transport.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "core/slices.hpp"
#include "group/group.hpp"
#include "pass/block_update.hpp"

namespace ddp::pass {

/// What a bucket asks of the transport, with the gradients where they are now.
using DescribeBucket = std::function<collective::BucketSpec(size_t bucket)>;

class OptimizerStage {
 public:
  /// `may_follow`: steps may run right behind the reductions; not behind a hook that may still fail.
  OptimizerStage(group::Group& group, const Parameters& table, const Plan& plan, BlockUpdate& update,
                 DescribeBucket describe, bool may_follow);
  ~OptimizerStage();
  OptimizerStage(const OptimizerStage&) = delete;
  OptimizerStage& operator=(const OptimizerStage&) = delete;

  [[nodiscard]] const BlockUpdate& update() const noexcept { return update_; }
  [[nodiscard]] bool is_sharded() const noexcept { return sharded_; }
  /// Who owns what of the parameters, by number: everybody everything unless sharded.
  [[nodiscard]] const Ownership& ownership() const noexcept { return ownership_.parameters; }
  /// This rank's part of a parameter.
  [[nodiscard]] OwnedSpan owned(int32_t index) const noexcept { return ownership().part(group_.rank(), index); }

  // A REDUCE pass, in this order.
  void begin();
  [[nodiscard]] collective::BucketOperation& reduction(size_t bucket, collective::BucketOperation& usual) noexcept;
  /// After the reduction of the bucket was pushed.
  void follow(size_t bucket, collective::BucketOperation& reduction, const collective::BucketHeader& mine,
              collective::ProgressQueue& queue);
  /// All buckets are reduced; `is_void`: no step follows from them. Collective. False: parameters are updated in part, for
  /// good.
  [[nodiscard]] bool end(bool is_void);
  /// Why the step that was to follow was not made, on all ranks; then it was taken back.
  [[nodiscard]] std::optional<Error> take_failure() noexcept { return std::exchange(failure_, std::nullopt); }
  /// As end(), on a rank that only answers and makes no step. False: the others' step failed.
  [[nodiscard]] bool attend(bool is_void);
  /// The pass failed with the group.
  void give_up();

  /// The blocks of a step, on the own slices, and the all-gather of their values. Collective if sharded. `stream`: that of
  /// tensors on a GPU. Gives why the step failed, if the program's rule did; on all ranks, if `collective`. `function`
  /// begins the text.
  [[nodiscard]] std::optional<Error> run_step(const char* function, bool collective, void* stream = nullptr);
  /// True once after a pass in which the step was made already.
  [[nodiscard]] bool take_made_step() noexcept;
  [[nodiscard]] bool step_is_made() const noexcept { return made_step_; }
  /// Was the last pass reduced to slices, so that a gradient is complete in its owner's slice only?
  [[nodiscard]] bool reduces_to_slices() const noexcept { return sharded_ && prepared_ && group_.size() > 1; }

  /// Adds the terms of the 2-norm of the own slices, of parameters that `counts` says; those taken while the gradients were
  /// reduced (used ones), if there are any.
  template <class Counts>
  void add_square_terms(ExactSum& sum, Counts&& counts) const {
    if (norm_taken_) return join_taken(sum);
    for (int32_t index = 0; index < table_.parameter_count(); ++index)
      if (counts(index)) add_own_terms(index, 2, sum);
  }
  void add_own_terms(int32_t index, double p, ExactSum& sum) const noexcept;
  /// The gradients were changed after the reduction.
  void forget_norm() noexcept { norm_taken_ = false; }

  [[nodiscard]] bool set_address(size_t bucket, int32_t piece, std::byte* data) noexcept;

 private:
  struct Part;
  void join_taken(ExactSum& sum) const noexcept;
  void prepare();
  void publish(bool restored);
  void update_now(size_t bucket);
  [[nodiscard]] std::optional<Error> settle(const char* function, bool collective, void* stream);
  void refuse_capture() const;
  [[nodiscard]] const collective::BucketHeader& note_of_all(size_t bucket) noexcept;
  [[nodiscard]] void* gpu_stream() const;

  group::Group& group_;
  const Parameters& table_;
  const Plan& plan_;
  BlockUpdate& update_;
  DescribeBucket describe_;
  const bool sharded_;
  const bool may_follow_;
  const PlanOwnership ownership_;
  bool on_gpu_ = false;                       // some bucket is
  bool in_host_ = false;                      // some bucket is not
  std::vector<std::unique_ptr<Part>> parts_;  // by bucket
  bool prepared_ = false;
  bool immediate_ = false;  // in this pass
  bool followed_ = false;   // buckets were followed by their step in this pass
  bool made_step_ = false;
  bool norm_taken_ = false;
  std::optional<Error> problem_;  // of a step within this pass
  std::optional<Error> failure_;  // of the program's rule in it
};

}  // namespace ddp::pass
