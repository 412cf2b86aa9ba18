// SPDX-License-Identifier: Apache-2.0
#include "model/values.hpp"

#include "model/model.hpp"

namespace ddp::model {

namespace {

/// The one to take, as far as this process knows.
std::string such_as(const std::string& file) {
  return file.empty() ? "" : "; the newest that this process knows is \"" + file + "\"";
}

}  // namespace

void Values::require_whole(const char* function, Late late) const {
  if (late == Late::kAreAwaited && model_.is_committed()) model_.pass().await_values();
  const std::string newest = such_as(newest_file_);
  const bool optimizer = torn_.optimizer || (model_.is_committed() && model_.pass().results().is_torn());
  if (torn_.optimizer && torn_.is_lost)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: ranks that are gone held parts of the optimizer's state (shard = 1), and nothing is left that was "
                     "kept (ddp_state_keep); load a checkpoint with the optimizer%s",
                     function, newest.c_str());
  if (torn_.parameters || optimizer)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: a pass or a load that failed has changed only a part of the %s; load a checkpoint%s%s", function,
                     optimizer ? "parameters and of the optimizer's state" : "parameters",
                     optimizer ? " with the optimizer" : "", newest.c_str());
}

bool Values::is_whole() const noexcept {
  const bool pass_is_torn = model_.is_committed() && model_.pass().results().is_torn();
  return !torn_.parameters && !torn_.optimizer && !pass_is_torn && !broke_off_;
}

void Values::require_own(const char* function, const void* owner, Late late) const {
  if (late == Late::kAreAwaited && model_.is_committed()) model_.pass().await_values();
  if (averages_of_ != nullptr && averages_of_ != owner)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the parameters hold averages; swap them back with ddp_ema_swap first, or the change is lost",
                     function);
}

Values::Torn Values::begin_load(bool optimizer) noexcept {
  Torn before = torn_;
  if (!model_.is_committed()) return before;  // commit gives rank 0's values to all ranks
  model_.pass().changed(pass::Change::kLoad);
  if (model_.pass().results().take_torn()) before = Torn{true, true};
  torn_ = Torn{true, before.optimizer || optimizer};
  return before;
}

void Values::end_load(const Torn& torn) noexcept {
  torn_ = torn;
  broke_off_ = false;
  if (model_.is_committed()) model_.pass().changed(pass::Change::kBuffers);
}

}  // namespace ddp::model
