#include "ddprun/restarts.hpp"

#include <algorithm>

namespace ddp::ddprun {
namespace {

constexpr int64_t kFirstDelayMs = 1'000;
constexpr int64_t kLongestDelayMs = 600'000;
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

int64_t Restarts::delay_ms(int64_t lived_ms) noexcept {
  delay_ms_ = lived_ms > kSoonMs || delay_ms_ == 0 ? kFirstDelayMs : std::min(2 * delay_ms_, kLongestDelayMs);
  return delay_ms_;
}

}  // namespace ddp::ddprun
