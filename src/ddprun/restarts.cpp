// SPDX-License-Identifier: Apache-2.0
#include "ddprun/restarts.hpp"

#include <algorithm>

namespace ddp::ddprun {
namespace {

constexpr int64_t kFirstRestMs = 10'000;
constexpr int64_t kLongestRestMs = 600'000;
constexpr int64_t kSoonMs = 60'000;  // a rank that fails within it flaps

}  // namespace

Answer Restarts::next(int32_t running, int32_t succeeded) noexcept {
  const bool enough = running > 0 && running + succeeded >= least_ranks_;
  if (succeeded > 0) return enough || succeeded >= least_ranks_ ? Answer::kGoOn : Answer::kEnd;  // nothing is left to join
  if (used_ >= most_) return enough && may_shrink_ ? Answer::kGoOn : Answer::kEnd;
  ++used_;
  return enough ? Answer::kJoin : Answer::kRestartAll;
}

std::string Restarts::label() const { return " (restart " + std::to_string(used_) + " of " + std::to_string(most_) + ")"; }

int64_t Cooldown::rest_ms(const std::string& place, int64_t lived_ms) {
  Place& there = places_[place];
  const bool flaps = there.failed && lived_ms <= kSoonMs;
  there.failed = true;
  there.rest_ms = !flaps ? 0 : there.rest_ms == 0 ? kFirstRestMs : std::min(2 * there.rest_ms, kLongestRestMs);
  return there.rest_ms;
}

int64_t PendingRestart::left_ms(bool all_ended) const {
  int64_t left = all_ended ? std::min(due.left_ms(), all_due.left_ms()) : due.left_ms();
  for (const auto& [rank, when] : resting) left = std::min(left, when.left_ms());
  return left;
}

}  // namespace ddp::ddprun
