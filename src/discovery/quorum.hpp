// SPDX-License-Identifier: Apache-2.0
// Which ranks of a broken group may continue, so that never two parts of it do, and which rank another one follows. Pure.
// Tested by unit/discovery/quorum_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ddp::bootstrap {

/// What the rank that decides knows of another, or of itself.
enum class Standing {
  kHere,
  kExpected,  // alive, as far as is known: it may still come
  kSilent,    // it may be dead, or on the other side of a cut
  kEnded,     // its process has ended, according to its launcher: it may have continued with others first, and ended then
  kDead       // seen to be, by its own host: by a rank there which was with it until it ended
};

struct RecoveryRule {
  int32_t min_ranks = 1;
  bool allow_half = false;   // half of the ranks may continue, if the lowest one is among them
  int64_t wait_ms = 60'000;  // for ranks that live but do not come
  int64_t cool_down_ms = 0;  // of a host whose ranks die again and again; 0: none
};

enum class Verdict {
  kWait,
  kForm,      // with those who are here
  kTooFew,    // fewer than min_ranks
  kMinority,  // others may live, and they may be as many
};

/// Ids of the ranks of a group, in ascending order.
using Membership = std::vector<int32_t>;

/// `by_id`: the standing of every id. `memberships`: the last one that all its ranks have confirmed, and each that was
/// formed after it: the present ranks must be able to continue in every one of them. If ranks are only silent, that takes
/// more than half of those that are not dead. An ended rank counts as dead if the absent ranks were too few to continue
/// alone.
[[nodiscard]] Verdict judge(const std::vector<Standing>& by_id, const std::vector<Membership>& memberships,
                            const RecoveryRule& rule);

/// What a rank sees of a lower one.
struct Sight {
  Standing standing = Standing::kExpected;
  bool serves = false;  // only if it is expected
};

/// Ranks that are expected and are looked at together: more than one host has, which may end as a whole.
inline constexpr int32_t kLookedAt = 64;

/// The rank that rank `self` follows: the lowest rank below it that serves, else the lowest that is expected. Nothing: it
/// serves itself. Ranks above the first that serves, or above kLookedAt expected ones, are not looked at: each look is a
/// connection.
[[nodiscard]] std::optional<int32_t> find_leader(const Membership& members, int32_t self,
                                                 const std::function<Sight(int32_t)>& look);

}  // namespace ddp::bootstrap
