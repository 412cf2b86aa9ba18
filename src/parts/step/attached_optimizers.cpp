// SPDX-License-Identifier: Apache-2.0
#include "parts/step/attached_optimizer.hpp"

namespace ddp::parts {

pass::Traits AttachedOptimizer::traits() const noexcept {
  pass::Traits traits;
  const std::shared_ptr<BlockUpdate> update = update_.lock();
  traits.calls_program = update != nullptr && update->may_fail();
  return traits;
}

void AttachedOptimizer::require(ddp_pass mode, pass::Role role) const {
  if (mode == DDP_PASS_ACCUMULATE || role == pass::Role::kJoined) return;
  if (const OptimizerStage* const last = stage(); last != nullptr && last->step_is_made())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_begin_backward: the optimizer with in_backward has updated in the last pass already; call "
                "ddp_optimizer_step "
                "after every REDUCE pass");
}

/// A rank that has joined gets the state of the others in the end.
void AttachedOptimizer::begin(pass::Opening& opening) {
  std::shared_ptr<BlockUpdate> held = update_.lock();
  if (held == nullptr) stage_.reset();
  active_ = opening.mode == DDP_PASS_REDUCE && opening.role != pass::Role::kJoined ? stage_.get() : nullptr;
  if (active_ != nullptr) active_->begin();
  held_ = std::move(held);
}

collective::BucketOperation& AttachedOptimizer::choose(size_t bucket, collective::BucketOperation& usual) noexcept {
  return active_ != nullptr ? active_->reduction(bucket, usual) : usual;
}

void AttachedOptimizer::started(size_t bucket, collective::BucketOperation& reduction, collective::ProgressQueue& queue) {
  if (active_ != nullptr) active_->follow(bucket, reduction, queue);
}

pass::Vote AttachedOptimizer::vote() const noexcept {
  if (active_ == nullptr) return {};
  return {false, active_->reduces_to_slices(), active_->leaves_sums()};
}

void AttachedOptimizer::order() {
  if (active_ != nullptr) active_->join_updates();
}

bool AttachedOptimizer::conclude(const pass::Verdict& verdict) {
  return active_ == nullptr || active_->end(verdict.is_void);
}

bool AttachedOptimizer::answer(const pass::Verdict& verdict) { return stage_ == nullptr || stage_->attend(verdict.is_void); }

void AttachedOptimizer::report() {
  if (active_ == nullptr) return;
  if (const std::optional<Error> failure = active_->take_failure()) throw Error(*failure);
}

void AttachedOptimizer::broken() {
  if (active_ != nullptr) active_->give_up();
}

void AttachedOptimizer::changed(pass::Change what) noexcept {
  if (stage_ == nullptr) return;
  if (what == pass::Change::kGradientsZeroed || what == pass::Change::kGradientsScaled) stage_->forget_norm();
  if (what == pass::Change::kStep || what == pass::Change::kLoad) static_cast<void>(stage_->take_made_step());
}

bool AttachedOptimizer::set_address(size_t bucket, int32_t piece, std::byte* data) noexcept {
  return stage_ == nullptr || stage_->set_address(bucket, piece, data);
}

}  // namespace ddp::parts
