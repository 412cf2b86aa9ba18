// SPDX-License-Identifier: Apache-2.0
#include "parts/step/bucket_steps.hpp"

#include <algorithm>

#include "device/cpu/arrays.hpp"

namespace ddp::parts {
namespace {

constexpr int64_t kBlockElements = 16'384;
constexpr int64_t kBytesPerElement = 16;  // about what an update reads of an element; for the budget

}  // namespace

void NormWork::on_block(int32_t piece, int64_t first, int64_t count) noexcept {
  if (plan_.norm != StepPlan::Norm::kWhileReduced) return;
  const PlannedPiece& planned = bucket_.pieces[static_cast<size_t>(piece)];
  const Tensor part = flat_part(table_.parameter(planned.parameter).grad, planned.first + first, count);
  cpu::add_norm_terms(part.dtype, part.data, part.count, 2, sum_);
}

collective::Progress BucketStep::advance(int64_t budget_bytes) {
  if (reduction_->advance(0) != collective::Progress::kDone) return collective::Progress::kWaiting;
  work_on(budget_bytes);
  return piece_ == bucket_.pieces.size() ? collective::Progress::kDone : collective::Progress::kAdvanced;
}

void BucketStep::work_on(int64_t budget_bytes) noexcept {
  const collective::BucketHeader& header = reduction_->header();
  while (piece_ < bucket_.pieces.size() && budget_bytes > 0) {
    const bool used = !header.is_void() && (header.used[piece_ / 64] >> (piece_ % 64) & 1) != 0;
    if (whole_) {
      if (used) change_completed(piece_);
      budget_bytes -= bucket_.pieces[piece_++].count * kBytesPerElement;
      continue;
    }
    const int64_t left = bucket_.pieces[piece_].count - at_;
    const int64_t count = used ? std::min(kBlockElements, left) : left;
    if (used && count > 0) {
      on_block(static_cast<int32_t>(piece_), at_, count);
      budget_bytes -= count * kBytesPerElement;
    }
    at_ += count;
    if (count < left) continue;
    ++piece_;
    at_ = 0;
  }
}

void BucketStep::change_completed(size_t piece) noexcept {
  if (completed_.empty() || completed_[piece] == 0 || state_.is(StepState::Is::kTakenBack)) return;
  update_.update_block(bucket_.pieces[piece].parameter, 0, completed_[piece]);
}

void BucketStep::work_on(const Ownership::Slice& slice) noexcept {
  for (const OwnedSpan& span : slice)
    if (update_.takes_part(bucket_.pieces[static_cast<size_t>(span.piece)].parameter))
      change(span.piece, span.first, span.count);
}

void BucketStep::work_on_all() noexcept {
  for (size_t piece = 0; piece < bucket_.pieces.size(); ++piece)
    whole_ ? change_completed(piece) : on_block(static_cast<int32_t>(piece), 0, bucket_.pieces[piece].count);
}

collective::Progress GatherBehind::advance(int64_t) {
  if (reduction_->advance(0) != collective::Progress::kDone) return collective::Progress::kWaiting;
  finish();
  return collective::Progress::kDone;
}

void GatherBehind::finish() {
  if (done_) return;
  all_gather_->start(reduction_->header());
  all_gather_->finish();
  done_ = true;
}

}  // namespace ddp::parts
