// SPDX-License-Identifier: Apache-2.0
#include "group/survival.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "control/consensus.hpp"
#include "control/identity.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "discovery/place.hpp"
#include "os/log.hpp"
#include "socket/address.hpp"

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

void Survival::introduce(bootstrap::Control& control, const ddp_group_options& options, os::Deadline deadline) {
  const std::vector<std::string> answers = bootstrap::all_or_none(control, "recovery addresses", deadline, [&] {
    if (listener_ == nullptr)
      listener_ = std::make_unique<bootstrap::Listener>(
          control.size() == 1 ? place_->own_host() : socket::socket_address(control, secure_getenv("DDP_SOCKET_IFNAME")),
          bootstrap::port_range_of(options));
    ByteWriter said;
    said.number(is_member() ? generation_ : int64_t{0});
    return std::move(said).bytes() + listener_->record();
  });
  Met met;
  for (const std::string& answer : answers) {
    ByteReader reader(answer);
    const auto rank = static_cast<int32_t>(met.records.size());
    const auto generation = reader.number<int64_t>();
    if (generation == 0) met.newcomers.push_back(rank);
    met.generation = std::max(met.generation, generation);
    met.records.emplace_back(reader.rest());
    if (!bootstrap::read_record(met.records.back()))
      throw make_error(DDP_ERROR_INTERNAL, "%s cannot be found after a failure: its address is \"%.60s\"",
                       control.member(rank).name().c_str(), met.records.back().c_str())
          .about(rank)
          .as_agreed();
    met.members.push_back(control.member(rank).id);
  }
  const bool all_are_new = met.generation == 0;
  if (all_are_new) met.newcomers.clear();
  met_ = std::move(met);
  if (!is_member() && !all_are_new) {
    generation_ = met_.generation + 1;
    place_->introduce(control, listener_->record(), met_.records);
  }
  if (!all_are_new) return;
  count_met();
  adopt_met(control, options);
}

void Survival::confirm(bootstrap::Control& control, const ddp_group_options& options, os::Deadline deadline) {
  count_met();  // from here on others may have seen the end of the exchange
  static_cast<void>(control.gather("recovered", "", deadline));
  adopt_met(control, options);
}

/// Both or none, whatever is thrown.
void Survival::count_met() {
  std::vector<std::string> records = records_;
  records.resize(std::max(records.size(), static_cast<size_t>(met_.members.back()) + 1));
  for (size_t rank = 0; rank < met_.records.size(); ++rank)
    records[static_cast<size_t>(met_.members[rank])] = met_.records[rank];
  memberships_.push_back(met_.members);
  records_ = std::move(records);
}

void Survival::adopt_met(const bootstrap::Control& control, const ddp_group_options& options) {
  note_deaths();
  memberships_.erase(memberships_.begin(), memberships_.end() - 1);
  generation_ = met_.generation + 1;
  owed_ = 0;
  patience_ms_ = 0;
  const bootstrap::Membership& members = memberships_.back();
  for (size_t id = 0; id < records_.size(); ++id)
    if (!is_known(static_cast<int32_t>(id))) std::string().swap(records_[id]);
  if (control.rank() == 0 && place_->is_known()) open_lobby(control, options);
  place_->tell(control, listener_->record(), records_[static_cast<size_t>(members.front())]);
}

int64_t Survival::limit_ms(int64_t timeout_ms) const noexcept {
  if (patience_ms_ <= 0 || met_.newcomers.empty()) return timeout_ms;
  return timeout_ms <= 0 ? patience_ms_ : std::min(patience_ms_, timeout_ms);
}

bool Survival::is_known(int32_t id) const noexcept {
  return std::any_of(memberships_.begin(), memberships_.end(), [id](const bootstrap::Membership& members) {
    return std::binary_search(members.begin(), members.end(), id);
  });
}

bool Survival::may_try_again(const bootstrap::Control& control, const Error& error) const {
  if (breaks_group(error.status())) return true;
  if (!is_member()) return false;
  for (int32_t rank = 0; rank < control.size(); ++rank)
    if (!is_known(control.member(rank).id)) return true;
  return !met_.newcomers.empty();
}

void Survival::excuse(const bootstrap::Control& control, const ddp_group_options& options, const Error& error) const {
  const int32_t culprit = error.culprit();
  if (options.join == 0 || is_member() || breaks_group(error.status()) || culprit < 0 || culprit == control.rank()) return;
  throw make_error(DDP_ERROR_ABORTED, "%s cannot be in the group, so the others go on without the new ranks: %s",
                   control.member(culprit).name().c_str(), error.what());
}

void Survival::open_lobby(const bootstrap::Control& control, const ddp_group_options& options) {
  const bootstrap::LostGroup standing = describe(control);
  for (const bootstrap::ServerConfig::KeptOut& each : standing.kept_out)
    os::log(DDP_LOG_WARNING,
            "ranks have died %zu times on host %s within 10 minutes: no new rank of it is taken in for %.1f s", each.deaths,
            each.host.c_str(), static_cast<double>(each.until_ns - os::now_ns()) * 1e-9);
  const auto open = [&] { lobby_ = bootstrap::open_lobby(*listener_, standing, options); };
  if (const std::optional<Error> problem = try_to(open))  // the group is formed
    os::log_of(*problem, DDP_LOG_WARNING, "no new ranks are taken in before the next recovery: %s", problem->what());
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

/// A host is not kept out if no rank would be left without it.
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
  return {me.id, me.world_rank, records_, {}, memberships_, kept_out(control), bootstrap::NewRanks::kTaken};
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
                                                   const bootstrap::RecoveryRule& rule, const ddp_group_options& options,
                                                   bootstrap::NewRanks new_ranks) {
  met_ = Met();
  if (!is_member()) return join(options, os::Deadline::in_ms(options.rendezvous_timeout_ms));
  cool_down_ms_ = rule.cool_down_ms;
  patience_ms_ = rule.wait_ms;
  if (const auto cause = failure.cause(); cause && cause->culprit() >= 0 && bootstrap::texts::is_left_group(old, *cause))
    left_ = old.member(cause->culprit()).id;
  bootstrap::LostGroup lost = describe(old);
  lost.new_ranks = new_ranks;
  std::vector<int32_t> silent = suspects(old, failure, options.dead_after_ms);
  if (!old.settle().has_value()) silent.push_back(0);  // it knows that the group has broken, and does not answer
  for (const int32_t rank : silent)
    if (const int32_t id = old.member(rank).id; is_known(id)) lost.suspects.push_back(id);
  return bootstrap::meet_again(*listener_, lost, rule, options, std::move(lobby_));
}

void Survival::follow(const std::weak_ptr<Follower>& follower) {
  std::erase_if(followers_, [](const std::weak_ptr<Follower>& each) { return each.expired(); });
  followers_.push_back(follower);
}

std::vector<std::shared_ptr<Follower>> Survival::followers() {
  std::vector<std::shared_ptr<Follower>> alive;
  for (const std::weak_ptr<Follower>& each : followers_)
    if (auto follower = each.lock()) alive.push_back(std::move(follower));
  return alive;
}

}  // namespace ddp::group
