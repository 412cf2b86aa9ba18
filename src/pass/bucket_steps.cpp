#include "pass/bucket_steps.hpp"

#include <algorithm>

namespace ddp::pass {
namespace {

constexpr int64_t kBlockElements = 16'384;
constexpr int64_t kBytesPerElement = 16;  // about what an update reads of an element; for the budget

}  // namespace

collective::Progress UpdateAfter::advance(int64_t budget_bytes) {
  if (reduction_->advance(0) != collective::Progress::kDone) return collective::Progress::kWaiting;
  work_on(budget_bytes);
  return piece_ == counts_.size() ? collective::Progress::kDone : collective::Progress::kAdvanced;
}

void UpdateAfter::work_on(int64_t budget_bytes) noexcept {
  const collective::BucketHeader& note = reduction_->note();
  while (piece_ < counts_.size() && budget_bytes > 0) {
    const bool used = !note.is_void() && (note.used[piece_ / 64] >> (piece_ % 64) & 1) != 0;
    const int64_t count = used ? std::min(kBlockElements, counts_[piece_] - at_) : counts_[piece_] - at_;
    if (used && count > 0) {
      work_.on_block(static_cast<int32_t>(piece_), at_, count);
      budget_bytes -= count * kBytesPerElement;
    }
    at_ += count;
    if (at_ < counts_[piece_]) continue;
    ++piece_;
    at_ = 0;
  }
}

}  // namespace ddp::pass
