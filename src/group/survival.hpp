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
#include "os/clock.hpp"

namespace ddp::group {

/// What is built on a group's ranks (a model) and is built again on those that are left.
class Follower {
 public:
  virtual ~Follower() = default;
  /// The group has broken: an open pass ends, and its changes are taken back.
  virtual void stop() noexcept {}
  /// Its transports end: release them.
  virtual void leave_group() noexcept = 0;
  /// The ranks have met. Collective; followers come in the order in which they began to follow. Gives the rank whose state
  /// all have now, -1 if they had the same.
  virtual int32_t rejoin_group() = 0;
  /// Steps of optimizers that made what it holds; -1 if none counts them.
  [[nodiscard]] virtual int64_t steps() { return -1; }
  /// Is it the state of one step? False: a checkpoint has to be loaded.
  [[nodiscard]] virtual bool is_whole() const noexcept { return true; }
  /// The error of that, once, the same on all ranks; the group is usable nevertheless.
  [[nodiscard]] virtual std::optional<Error> take_problem() noexcept { return std::nullopt; }

  // Peer checkpoints (keeper.hpp).
  /// Is it what builds this object?
  [[nodiscard]] virtual bool is_of(const void*) const noexcept { return false; }
  /// Between stop() and leave_group(): equal on all ranks that have the same state of the same step. "": it is not whole, or
  /// cannot be read now.
  [[nodiscard]] virtual std::string version() { return {}; }
  /// All that changes in training, in the same order on all ranks.
  [[nodiscard]] virtual std::vector<KeptTensor> kept_tensors() { return {}; }
  /// Settings and counts that belong to it.
  [[nodiscard]] virtual std::string kept_fields() { return {}; }
  /// The tensors change to those of a generation from now on: it is not whole.
  virtual void begin_back() noexcept {}
  /// They have changed; with these fields it is whole. Throws MISMATCH or IO.
  virtual void end_back(const std::string&) {}
};

/// The change of members by a recovery.
struct Changes {
  std::vector<int32_t> renumbered;  // by old rank: the new rank, -1: lost
  std::vector<int32_t> joined;      // ranks of now that are new

  [[nodiscard]] static Changes between(const std::vector<bootstrap::Member>& before, const bootstrap::Control& now);
  [[nodiscard]] std::vector<int32_t> gone() const;
};

class Survival {
 public:
  /// `place`: where new ranks find the group.
  explicit Survival(std::unique_ptr<bootstrap::JoinPlace> place) : place_(std::move(place)) {}

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
  /// True for the last commit that is owed.
  [[nodiscard]] bool pay() noexcept { return owed_ > 0 && --owed_ == 0; }

  /// How long an exchange may take: `timeout_ms`, but where new ranks have not committed yet no longer than a recovery waits
  /// for a rank that computes.
  [[nodiscard]] int64_t limit_ms(int64_t timeout_ms) const noexcept;

  /// An attempt to meet and build failed with this. May another one end better? Where ranks are new, one without them may.
  [[nodiscard]] bool may_try_again(const bootstrap::Control& control, const Error& error) const;
  /// For a rank that joins: what another new rank did wrong is no error of this one. Throws ABORTED in its place.
  void excuse(const bootstrap::Control& control, const ddp_group_options& options, const Error& error) const;
  /// Does a rank wait to be taken in? On rank 0; a lock. False elsewhere.
  [[nodiscard]] bool is_joined_by_others() const;

  /// Ranks that the failure names, or that were silent before it, by rank.
  [[nodiscard]] static std::vector<int32_t> suspects(const bootstrap::Control& control, const bootstrap::Failure& failure,
                                                     int64_t dead_after_ms);
  /// See bootstrap::meet_again(). `old` is the control plane that broke. A rank that is no member yet joins again.
  [[nodiscard]] std::unique_ptr<bootstrap::Control> meet(bootstrap::Control& old, const bootstrap::Failure& failure,
                                                         const bootstrap::RecoveryRule& rule,
                                                         const ddp_group_options& options, bootstrap::NewRanks new_ranks);

  /// Once for each, in the same order on all ranks.
  void follow(std::weak_ptr<Follower> follower);
  [[nodiscard]] std::vector<std::shared_ptr<Follower>> followers();
  /// 1 for the group as it was created, one more after each recovery; the same on all ranks.
  [[nodiscard]] int64_t generation() const noexcept { return generation_; }
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
