// SPDX-License-Identifier: Apache-2.0
#include "group/survival.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "bootstrap/control/consensus.hpp"
#include "bootstrap/control/identity.hpp"
#include "bootstrap/control/texts.hpp"
#include "bootstrap/rendezvous/record_store.hpp"
#include "collective/socket/address.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kMs = 1'000'000;

}  // namespace

Changes Changes::between(const std::vector<bootstrap::Member>& before, const bootstrap::Control& now) {
  Changes changes;
  std::vector<bool> was_here(static_cast<size_t>(now.size()));
  for (const bootstrap::Member& old : before) {
    int32_t rank = now.size() - 1;
    while (rank >= 0 && (now.member(rank).id != old.id || now.member(rank).pid != old.pid)) --rank;
    if (rank >= 0) was_here[static_cast<size_t>(rank)] = true;
    changes.renumbered.push_back(rank);
  }
  for (int32_t rank = 0; rank < now.size(); ++rank)
    if (!was_here[static_cast<size_t>(rank)]) changes.joined.push_back(rank);
  return changes;
}

std::vector<int32_t> Changes::gone() const {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < renumbered.size(); ++rank)
    if (renumbered[rank] < 0) ranks.push_back(static_cast<int32_t>(rank));
  return ranks;
}

void Survival::formed(const bootstrap::Control& control) {
  bootstrap::Membership members;
  for (int32_t rank = 0; rank < control.size(); ++rank) members.push_back(control.member(rank).id);
  memberships_.push_back(std::move(members));
}

void Survival::confirm(bootstrap::Control& control, const ddp_group_options& options, os::Deadline deadline) {
  note_deaths();
  memberships_.erase(memberships_.begin(), memberships_.end() - 1);
  ++generation_;
  const std::vector<std::string> told = bootstrap::all_or_none(control, "recovery addresses", deadline, [&] {
    if (standby_ == nullptr)
      standby_ = std::make_unique<bootstrap::Standby>(
          control.size() == 1 ? place_->own_host() : socket::socket_address(control, secure_getenv("DDP_SOCKET_IFNAME")),
          bootstrap::port_range_of(options));
    return std::to_string(generation_) + "\n" + standby_->record();
  });
  const bootstrap::Membership& members = memberships_.back();
  records_.resize(std::max(records_.size(), static_cast<size_t>(members.back()) + 1));
  for (size_t rank = 0; rank < told.size(); ++rank) {
    const size_t end = std::min(told[rank].find('\n'), told[rank].size() - 1);
    generation_ = std::max<int64_t>(generation_, std::atoll(told[rank].c_str()));  // of a rank that is new it was 0
    records_[static_cast<size_t>(members[rank])] = told[rank].substr(end + 1);
  }
  if (control.rank() == 0 && place_->is_known()) open_lobby(control, options);
  place_->tell(control, standby_->record(), records_[static_cast<size_t>(members.front())]);
}

void Survival::open_lobby(const bootstrap::Control& control, const ddp_group_options& options) {
  const bootstrap::LostGroup standing = describe(control);
  for (const bootstrap::ServerConfig::KeptOut& each : standing.kept_out)
    os::log(DDP_LOG_WARNING,
            "ranks have died %zu times on host %s within 10 minutes: no new rank of it is taken in for %.1f s", each.deaths,
            each.host.c_str(), static_cast<double>(each.until_ns - os::now_ns()) * 1e-9);
  lobby_ = bootstrap::open_lobby(*standby_, standing, options);
}

/// In the membership that was the last to be confirmed, and not in the one of now.
void Survival::note_deaths() {
  const bootstrap::Membership& now = memberships_.back();
  std::set<std::string> hosts;
  for (const int32_t id : memberships_.front()) {
    if (id == left_ || std::binary_search(now.begin(), now.end(), id)) continue;
    if (const auto record = bootstrap::read_record(records_[static_cast<size_t>(id)]))
      hosts.insert(bootstrap::lasting_host(record->host, record->boot_id));
  }
  cool_down_.note_deaths(hosts, os::now_ns());
  left_ = -1;
}

/// A host without which nobody would be there is not kept out.
std::vector<bootstrap::ServerConfig::KeptOut> Survival::kept_out(const bootstrap::Control& control) const {
  std::vector<bootstrap::ServerConfig::KeptOut> kept;
  for (const bootstrap::CoolDown::Kept& each : cool_down_.kept_out(cool_down_ms_, os::now_ns())) {
    bool others = false;
    for (int32_t rank = 0; rank < control.size(); ++rank)
      others = others || bootstrap::lasting_host(control.member(rank).host, control.member(rank).boot_id) != each.host;
    if (others) kept.push_back({each.host, each.deaths, each.until_ns});
  }
  return kept;
}

std::unique_ptr<bootstrap::Control> Survival::join(const ddp_group_options& options, const os::Deadline& deadline) const {
  return bootstrap::join_standing(*place_, options, deadline);
}

bool Survival::is_joined_by_others() const {
  if (lobby_ == nullptr) return false;
  const std::vector<int32_t> here = lobby_->present();
  return !here.empty() && here.back() >= static_cast<int32_t>(records_.size());
}

bootstrap::LostGroup Survival::describe(const bootstrap::Control& control) const {
  const bootstrap::Member& me = control.member(control.rank());
  return {me.id, me.world_rank, records_, {}, memberships_, kept_out(control)};
}

std::vector<int32_t> Survival::suspects(const bootstrap::Control& control, const bootstrap::Failure& failure,
                                        int64_t dead_after_ms) {
  std::vector<int32_t> ranks;
  const std::optional<Error> cause = failure.cause();
  const int64_t latest_ns = control.last_sign(0).at_ns;  // all signs come through rank 0
  for (int32_t rank = 0; rank < control.size(); ++rank) {
    const bool named =
        (cause.has_value() && cause->culprit() == rank) || (rank == control.rank() && control.last_sign(rank).stood_still);
    const int64_t heard_ns = control.last_sign(rank).at_ns;
    if (named || (heard_ns != 0 && latest_ns - heard_ns > dead_after_ms * kMs / 2)) ranks.push_back(rank);
  }
  return ranks;
}

std::unique_ptr<bootstrap::Control> Survival::meet(bootstrap::Control& old, const bootstrap::Failure& failure,
                                                   const bootstrap::RecoveryRule& rule, const ddp_group_options& options) {
  cool_down_ms_ = rule.cool_down_ms;
  if (const auto cause = failure.cause(); cause && cause->culprit() >= 0 && bootstrap::texts::is_left_group(old, *cause))
    left_ = old.member(cause->culprit()).id;
  bootstrap::LostGroup lost = describe(old);
  std::vector<int32_t> silent = suspects(old, failure, options.dead_after_ms);
  if (!old.settle().has_value()) silent.push_back(0);  // it was told that the group has broken, and does not answer
  for (const int32_t rank : silent) lost.suspects.push_back(old.member(rank).id);
  return bootstrap::meet_again(*standby_, lost, rule, options, std::move(lobby_));
}

void Survival::follow(std::weak_ptr<Follower> follower) {
  std::erase_if(followers_, [](const std::weak_ptr<Follower>& each) { return each.expired(); });
  followers_.push_back(std::move(follower));
}

std::vector<std::shared_ptr<Follower>> Survival::followers() {
  std::vector<std::shared_ptr<Follower>> alive;
  for (const std::weak_ptr<Follower>& each : followers_)
    if (auto follower = each.lock()) alive.push_back(std::move(follower));
  return alive;
}

}  // namespace ddp::group
