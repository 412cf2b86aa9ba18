#include "group/survival.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "bootstrap/control/consensus.hpp"
#include "collective/socket/address.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kMs = 1'000'000;

}  // namespace

void Survival::formed(const bootstrap::Control& control) {
  bootstrap::Membership members;
  for (int32_t rank = 0; rank < control.size(); ++rank) members.push_back(control.member(rank).id);
  memberships_.push_back(std::move(members));
}

void Survival::confirm(bootstrap::Control& control, os::Deadline deadline) {
  memberships_.erase(memberships_.begin(), memberships_.end() - 1);
  ++generation_;
  if (!records_.empty() || control.size() == 1) return;  // an address is for life
  records_ = bootstrap::all_or_none(control, "recovery addresses", deadline, [&] {
    standby_ = std::make_unique<bootstrap::Standby>(socket::socket_address(control, secure_getenv("DDP_SOCKET_IFNAME")));
    return standby_->record();
  });
}

std::vector<int32_t> Survival::suspects(const bootstrap::Control& control, const bootstrap::Failure& failure,
                                        int64_t dead_after_ms) {
  std::vector<int32_t> ranks;
  const std::optional<Error> cause = failure.cause();
  const int64_t latest_ns = control.last_sign(0).at_ns;  // all signs come through rank 0
  for (int32_t rank = 0; rank < control.size(); ++rank) {
    const bool named = (cause.has_value() && cause->culprit() == rank) || (rank == control.rank() && control.stood_still());
    const int64_t heard_ns = control.last_sign(rank).at_ns;
    if (named || (heard_ns != 0 && latest_ns - heard_ns > dead_after_ms * kMs / 2)) ranks.push_back(rank);
  }
  return ranks;
}

std::unique_ptr<bootstrap::Control> Survival::meet(const bootstrap::Control& old, const bootstrap::Failure& failure,
                                                   const bootstrap::RecoveryRule& rule, const ddp_group_options& options) {
  const bootstrap::Member& me = old.member(old.rank());
  bootstrap::LostGroup lost{me.id, me.world_rank, records_, {}, memberships_};
  for (const int32_t rank : suspects(old, failure, options.dead_after_ms)) lost.suspects.push_back(old.member(rank).id);
  return bootstrap::meet_again(*standby_, lost, rule, options);
}

void Survival::follow(std::weak_ptr<Follower> follower) {
  std::erase_if(followers_, [](const std::weak_ptr<Follower>& each) { return each.expired(); });
  followers_.push_back(std::move(follower));
}

void Survival::unfollow(const Follower& follower) noexcept {
  std::erase_if(followers_, [&](const std::weak_ptr<Follower>& each) { return each.lock().get() == &follower; });
}

std::vector<std::shared_ptr<Follower>> Survival::followers() {
  std::vector<std::shared_ptr<Follower>> alive;
  for (const std::weak_ptr<Follower>& each : followers_)
    if (auto follower = each.lock()) alive.push_back(std::move(follower));
  return alive;
}

}  // namespace ddp::group
