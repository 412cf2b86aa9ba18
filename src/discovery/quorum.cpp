// SPDX-License-Identifier: Apache-2.0
#include "discovery/quorum.hpp"

#include <algorithm>

namespace ddp::bootstrap {
namespace {

struct Count {
  int32_t here = 0;
  int32_t others = 0;  // silent, or ended
  int32_t ended = 0;
  bool lowest_is_here = false;            // of those that are not dead
  bool lowest_not_ended_is_here = false;  // and have not ended
};

Count count(const std::vector<Standing>& by_id, const Membership& members) {
  Count counted;
  for (const int32_t id : members) {
    const Standing standing = by_id[static_cast<size_t>(id)];
    if (standing == Standing::kDead) continue;
    const bool is_here = standing == Standing::kHere;
    if (counted.here + counted.others == 0) counted.lowest_is_here = is_here;
    if (counted.here + counted.others == counted.ended) counted.lowest_not_ended_is_here = is_here;
    if (standing == Standing::kEnded) ++counted.ended;
    ++(is_here ? counted.here : counted.others);
  }
  return counted;
}

bool is_enough(int32_t here, int32_t others, bool allow_half, bool have_lowest) noexcept {
  return here > others || (allow_half && here == others && have_lowest);
}

bool may_go_on(const Count& counted, bool allow_half) noexcept {
  if (counted.ended > 0 && is_enough(counted.others, counted.here, allow_half, !counted.lowest_is_here)) return false;
  return is_enough(counted.here, counted.others - counted.ended, allow_half, counted.lowest_not_ended_is_here);
}

}  // namespace

Verdict judge(const std::vector<Standing>& by_id, const std::vector<Membership>& memberships, const RecoveryRule& rule) {
  const auto is = [&](Standing standing) { return std::count(by_id.begin(), by_id.end(), standing); };
  if (is(Standing::kExpected) > 0) return Verdict::kWait;
  if (!std::all_of(memberships.begin(), memberships.end(),
                   [&](const Membership& members) { return may_go_on(count(by_id, members), rule.allow_half); }))
    return Verdict::kMinority;
  return is(Standing::kHere) < rule.min_ranks ? Verdict::kTooFew : Verdict::kForm;
}

std::optional<int32_t> find_leader(const Membership& members, int32_t self, const std::function<Sight(int32_t)>& look) {
  std::optional<int32_t> lowest;
  int32_t expected = 0;
  for (const int32_t id : members) {
    if (id >= self || expected == kLookedAt) break;
    const Sight sight = look(id);
    if (sight.standing != Standing::kExpected) continue;
    if (sight.serves) return id;
    if (expected++ == 0) lowest = id;
  }
  return lowest;
}

}  // namespace ddp::bootstrap
