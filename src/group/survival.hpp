// SPDX-License-Identifier: Apache-2.0
// The data that lets a group continue after ranks have died: the addresses of all ranks, the members of the group, and the
// work to do when the others have met again. It outlives the objects that a recovery replaces.
//
// Ranks that have met are no group yet. They introduce themselves, build the objects of a group, and confirm it in a last
// exchange. Before that, data that a later recovery needs does not change, so an attempt may fail at any point. A new rank
// is no member before, whatever it has received: if it fails, the others continue without it, and it joins again. Threads:
// one. Tested by capi/recovery_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/failure.hpp"
#include "control/control.hpp"
#include "discovery/cool_down.hpp"
#include "discovery/join_place.hpp"
#include "discovery/quorum.hpp"
#include "discovery/recovery.hpp"
#include "group/keeper.hpp"
#include "group/recoverable.hpp"
#include "os/clock.hpp"

namespace ddp::group {

/// The change of members by a recovery.
struct Changes {
  std::vector<int32_t> renumbered;  // by old rank: the new rank, -1: lost
  std::vector<int32_t> joined;      // ranks of now that are new

  [[nodiscard]] static Changes between(const std::vector<bootstrap::Member>& before, const bootstrap::Control& now);
  [[nodiscard]] std::vector<int32_t> gone() const;
};

class Survival final : public Recoverable {
 public:
  /// `place`: where new ranks find the group.
  explicit Survival(std::unique_ptr<bootstrap::JoinPlace> place) : place_(std::move(place)) {}

  void follow(const std::weak_ptr<Follower>& follower) override;
  [[nodiscard]] int64_t generation() const noexcept override { return generation_; }
  [[nodiscard]] int64_t limit_ms(int64_t timeout_ms) const noexcept override;
  void excuse(const bootstrap::Control& control, const ddp_group_options& options, const Error& error) const override;
  void note_commit(Group& group) override;
  [[nodiscard]] bool is_joined_by_others() const override;
  void forget_kept() noexcept override { keeper_.forget(); }

  /// For a rank that wants to join. Blocks.
  [[nodiscard]] std::unique_ptr<bootstrap::Control> join(const ddp_group_options& options,
                                                         const os::Deadline& deadline) const;

  /// These ranks have met: tell each other where they are found and which of them are new. If all are, the group is
  /// confirmed with that. Collective. Throws the same on all ranks.
  void introduce(bootstrap::Control& control, const ddp_group_options& options, os::Deadline deadline);
  /// The objects of the group are built: the ranks that introduced themselves are the group from here on. Collective.
  void confirm(bootstrap::Control& control, const ddp_group_options& options, os::Deadline deadline);
  /// Those of the ranks that introduced themselves that join the others; ascending.
  [[nodiscard]] const std::vector<int32_t>& newcomers() const noexcept { return met_.newcomers; }
  /// Is this rank in a group that was confirmed, as far as it can know? Not while it joins one.
  [[nodiscard]] bool is_member() const noexcept { return !memberships_.empty(); }
  /// Of a rank that joins: how many more models the others have than it has committed. Its last commit confirms.
  void owe(size_t commits) noexcept { owed_ = commits; }

  /// An attempt to meet and build failed with this. May another one end better? Where ranks are new, one without them may.
  [[nodiscard]] bool may_try_again(const bootstrap::Control& control, const Error& error) const;
  /// Ranks that the failure names, or that were silent before it, by rank.
  [[nodiscard]] static std::vector<int32_t> suspects(const bootstrap::Control& control, const bootstrap::Failure& failure,
                                                     int64_t dead_after_ms);
  /// See bootstrap::meet_again(). `old` is the control plane that broke. A rank that is no member yet joins again.
  [[nodiscard]] std::unique_ptr<bootstrap::Control> meet(bootstrap::Control& old, const bootstrap::Failure& failure,
                                                         const bootstrap::RecoveryRule& rule,
                                                         const ddp_group_options& options, bootstrap::NewRanks new_ranks);

  [[nodiscard]] std::vector<std::shared_ptr<Follower>> followers();
  /// In the last recovery; none before the first.
  [[nodiscard]] const Changes& changes() const noexcept { return changes_; }
  void set_changes(Changes changes) noexcept { changes_ = std::move(changes); }
  [[nodiscard]] Keeper& keeper() noexcept { return keeper_; }

 private:
  [[nodiscard]] bootstrap::LostGroup describe(const bootstrap::Control& control) const;
  void count_met();
  void adopt_met(const bootstrap::Control& control, const ddp_group_options& options);
  [[nodiscard]] bool is_known(int32_t id) const noexcept;
  void note_deaths();
  [[nodiscard]] std::vector<bootstrap::ServerConfig::KeptOut> kept_out(const bootstrap::Control& control) const;
  void open_lobby(const bootstrap::Control& control, const ddp_group_options& options);

  const std::unique_ptr<bootstrap::JoinPlace> place_;
  std::unique_ptr<bootstrap::Listener> listener_;
  std::vector<std::string> records_;                // by id; "" of a lost rank
  std::vector<bootstrap::Membership> memberships_;  // the last that is confirmed, and those that may be
  struct Met {                                      // those who introduced themselves last
    bootstrap::Membership members;
    std::vector<std::string> records;  // by rank
    std::vector<int32_t> newcomers;
    int64_t generation = 0;  // of those that are not new
  } met_;
  size_t owed_ = 0;
  int64_t patience_ms_ = 0;  // with new ranks, while they have not committed; 0: any
  std::vector<std::weak_ptr<Follower>> followers_;
  int64_t generation_ = 0;
  Changes changes_;
  bootstrap::CoolDown cool_down_;
  int64_t cool_down_ms_ = 0;                  // as the last recovery was asked
  int32_t left_ = -1;                         // id of a rank that has left in good order
  std::unique_ptr<bootstrap::Server> lobby_;  // of rank 0, while the group exists
  Keeper keeper_;
};

}  // namespace ddp::group
