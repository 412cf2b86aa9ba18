#include "bootstrap/rendezvous/quorum.hpp"

#include <algorithm>

namespace ddp::bootstrap {
namespace {

struct Count {
  int32_t here = 0;
  int32_t silent = 0;
  bool lowest_is_here = false;  // of those that are not dead
};

Count count(const std::vector<Standing>& by_id, const Membership& members) {
  Count counted;
  for (const int32_t id : members) {
    const Standing standing = by_id[static_cast<size_t>(id)];
    if (standing == Standing::kDead) continue;
    if (counted.here + counted.silent == 0) counted.lowest_is_here = standing == Standing::kHere;
    ++(standing == Standing::kHere ? counted.here : counted.silent);
  }
  return counted;
}

bool may_go_on(const Count& counted, bool allow_half) noexcept {
  return counted.here > counted.silent || (allow_half && counted.here == counted.silent && counted.lowest_is_here);
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

}  // namespace ddp::bootstrap
