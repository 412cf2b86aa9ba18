#include "pass/bucket_steps.hpp"

#include <algorithm>

#include "device/cpu/arrays.hpp"

namespace ddp::pass {
namespace {

constexpr int64_t kBlockElements = 16'384;
constexpr int64_t kBytesPerElement = 16;  // about what an update reads of an element; for the budget

}  // namespace

void NormWork::on_block(int32_t piece, int64_t first, int64_t count) noexcept {
  if (plan_.norm != StepPlan::Norm::kWhileReduced) return;
  const Tensor& grad = table_.parameter(bucket_.parameters[static_cast<size_t>(piece)]).grad;
  cpu::add_norm_terms(grad.dtype, grad.data + first * dtype_size(grad.dtype), count, 2, sum_);
}

collective::Progress BucketStep::advance(int64_t budget_bytes) {
  if (reduction_->advance(0) != collective::Progress::kDone) return collective::Progress::kWaiting;
  work_on(budget_bytes);
  return piece_ == counts_.size() ? collective::Progress::kDone : collective::Progress::kAdvanced;
}

void BucketStep::work_on(int64_t budget_bytes) noexcept {
  const collective::BucketHeader& header = reduction_->header();
  while (piece_ < counts_.size() && budget_bytes > 0) {
    const bool used = !header.is_void() && (header.used[piece_ / 64] >> (piece_ % 64) & 1) != 0;
    const int64_t count = used ? std::min(kBlockElements, counts_[piece_] - at_) : counts_[piece_] - at_;
    if (used && count > 0) {
      on_block(static_cast<int32_t>(piece_), at_, count);
      budget_bytes -= count * kBytesPerElement;
    }
    at_ += count;
    if (at_ < counts_[piece_]) continue;
    ++piece_;
    at_ = 0;
  }
}

void BucketStep::work_on_all() noexcept {
  for (size_t piece = 0; piece < counts_.size(); ++piece) on_block(static_cast<int32_t>(piece), 0, counts_[piece]);
}

}  // namespace ddp::pass
