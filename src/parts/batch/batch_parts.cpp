// SPDX-License-Identifier: Apache-2.0
#include "parts/batch/batch_parts.hpp"

#include <algorithm>
#include <utility>

namespace ddp::parts {

BatchParts::BatchParts(group::Group& group, const Parameters& table, const Plan& plan,
                       const std::vector<cpu::ReduceRule>& rules)
    : ranks_(VirtualRanks::of(group.options(), group.rank(), group.size())), used_(table.parameters().size()) {
  if (group.options().virtual_ranks > 0) buffers_ = std::make_unique<PartBuffers>(table);
  if (!ranks_.shared) return;
  closed_.reserve(static_cast<size_t>(ranks_.count));
  sums_ = std::make_unique<PartialSums>(group, table, plan, rules, ranks_.count);
}

void BatchParts::require(ddp_pass mode) const {
  if (mode == DDP_PASS_LOCAL && ranks_.shared)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_model_begin_backward: DDP_PASS_LOCAL depends on the number of ranks, so a group with virtual_ranks has "
                "none");
  if (mode == DDP_PASS_PART && is_last())
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_begin_backward: virtual rank %d is the last of this rank's in a step (%d of %d); its pass is "
        "a DDP_PASS_REDUCE",
        position(), ranks_.count, ranks_.total);
  if (mode == DDP_PASS_REDUCE && !is_last())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_begin_backward: this rank has the virtual ranks %d to %d, and %d is next; all but the last "
                     "are passes with DDP_PASS_PART",
                     ranks_.first, ranks_.first + ranks_.count - 1, position());
}

void BatchParts::close(const collective::Participation& mine, const pass::Marks& marks) noexcept {
  sums_->close(static_cast<int32_t>(closed_.size()), mine.weight);
  if (mine.contributors > 0)
    for (size_t index = 0; index < used_.size(); ++index)
      if (marks.contributes(static_cast<int32_t>(index))) used_[index] = 1;
  buffers_->end_part(is_first());
  closed_.push_back(mine);
}

void BatchParts::close_void(pass::MissingGradients missing) {
  missing.virtual_rank = position();
  if (!missing_) missing_ = std::move(missing);
  buffers_->end_part(is_first());
  closed_.push_back(collective::Participation::none());
}

collective::Participation BatchParts::join(const collective::Participation& last) const noexcept {
  const auto number = static_cast<int64_t>(closed_.size());
  return collective::sum_weights(number + 1,
                                 [&](int64_t part) { return part < number ? closed_[static_cast<size_t>(part)] : last; });
}

void BatchParts::finish(size_t bucket, const collective::Participation& last) noexcept {
  if (sums_ != nullptr) static_cast<void>(sums_->finish(bucket, static_cast<int32_t>(closed_.size()), last.weight));
}

void BatchParts::end_step(bool is_void) noexcept {
  if (buffers_ != nullptr) buffers_->end_step(is_void);
  forget();
}

void BatchParts::leave_group(bool awaits_step) noexcept {
  if (buffers_ != nullptr) buffers_->go_back(awaits_step);
  forget();
}

void BatchParts::restart() noexcept {
  if (buffers_ != nullptr) buffers_->begin_step();
  forget();
}

void BatchParts::forget() noexcept {
  closed_.clear();
  missing_.reset();
  std::fill(used_.begin(), used_.end(), 0);
}

}  // namespace ddp::parts
