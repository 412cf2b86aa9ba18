// SPDX-License-Identifier: Apache-2.0
#include "discovery/cool_down.hpp"

#include <algorithm>

namespace ddp::bootstrap {
namespace {

constexpr int64_t kMs = 1'000'000;

/// Of the `deaths`-th: first_ms doubled for each beyond the third.
int64_t cool_down_ms(size_t deaths, int64_t first_ms) noexcept {
  int64_t ms = std::min(first_ms, CoolDown::kWindowMs);
  for (size_t each = CoolDown::kDeaths; each < deaths && ms < CoolDown::kWindowMs; ++each) ms *= 2;
  return std::min(ms, CoolDown::kWindowMs);
}

}  // namespace

void CoolDown::note_deaths(const std::set<std::string>& hosts, int64_t now_ns) {
  for (const std::string& host : hosts) {
    std::vector<int64_t>& times = deaths_[host];
    std::erase_if(times, [now_ns](int64_t at_ns) { return now_ns - at_ns > kWindowMs * kMs; });
    times.push_back(now_ns);
  }
}

std::vector<CoolDown::Kept> CoolDown::kept_out(int64_t first_ms, int64_t now_ns) const {
  std::vector<Kept> kept;
  for (const auto& [host, times] : deaths_) {
    if (first_ms <= 0 || times.size() < kDeaths) continue;
    const int64_t until_ns = times.back() + cool_down_ms(times.size(), first_ms) * kMs;
    if (until_ns > now_ns) kept.push_back({host, times.size(), until_ns});
  }
  return kept;
}

}  // namespace ddp::bootstrap
