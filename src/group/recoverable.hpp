// SPDX-License-Identifier: Apache-2.0
// A group's recovery as those see it that are built on the group: they follow it, and do not know how it is done
// (survival.hpp, recovery.hpp). Threads: as Group.
// Tested by capi/recovery_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/owned_span.hpp"
#include "core/tensor.hpp"
#include "ddp/group.h"

namespace ddp::bootstrap {
class Control;
}  // namespace ddp::bootstrap
namespace ddp::group {

class Group;

/// A tensor of a kept state, on this rank. If the ranks hold parts of it, `parts` lists them, by rank, in elements, and at
/// `tensor.data` this rank's are contiguous.
struct KeptTensor {
  std::string name;
  Tensor tensor;
  std::vector<std::vector<OwnedSpan>> parts{};
};

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

/// Of a group that cannot recover; Survival is that of one that can.
class Recoverable {
 public:
  [[nodiscard]] static Recoverable& of(const Group& group) noexcept;
  virtual ~Recoverable() = default;

  /// Once for each, in the same order on all ranks. It is not followed where nothing recovers.
  virtual void follow(const std::weak_ptr<Follower>&) {}
  /// 1 for the group as it was created, one more after each recovery; the same on all ranks.
  [[nodiscard]] virtual int64_t generation() const noexcept { return 1; }
  /// How long an exchange may take: `timeout_ms`, but where new ranks have not committed yet no longer than a recovery waits
  /// for a rank that computes.
  [[nodiscard]] virtual int64_t limit_ms(int64_t timeout_ms) const noexcept { return timeout_ms; }
  /// A rank that joins failed with this: what another new rank did wrong is no error of this one. Throws ABORTED in its
  /// place.
  virtual void excuse(const bootstrap::Control&, const ddp_group_options&, const Error&) const {}
  /// A model was committed: the last that this rank owes confirms the group. Collective then.
  virtual void note_commit(Group&) {}
  /// Does a rank wait to be taken in? On rank 0; a lock. False elsewhere.
  [[nodiscard]] virtual bool is_joined_by_others() const { return false; }
  /// What is kept of its models (keeper.hpp) is over: a load begins to change the state.
  virtual void forget_kept() noexcept {}
};

}  // namespace ddp::group
