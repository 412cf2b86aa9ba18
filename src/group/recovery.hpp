// SPDX-License-Identifier: Apache-2.0
// Continues with the surviving ranks; the data for that is in survival.hpp.
// Threads: run() alone; the rest from any, but not while it runs.
// Tested by capi/recovery_test.cpp and chaos/kills.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "discovery/quorum.hpp"
#include "group/group.hpp"
#include "group/survival.hpp"

namespace ddp::group {

using bootstrap::RecoveryRule;

struct Recovery {
  /// A joining rank's value instead of the number of its models: it commits those of the others.
  static constexpr const char* kNewcomer = "new";

  /// NULL unless the option recoverable is set.
  [[nodiscard]] static Survival* survival(Group& group) noexcept;
  /// Has it a cause for which calls fail? Also if a rank left in good order.
  [[nodiscard]] static bool is_broken(const Group& group) noexcept;
  /// The same, after a moment in which the cause may arrive: another rank's error in an exchange comes before it.
  [[nodiscard]] static bool await_broken(const Group& group);
  /// Ranks that the cause names, or that were silent before it; none while it is not broken.
  [[nodiscard]] static std::vector<int32_t> failed(const Group& group);

  struct Progress {
    double silent = 0;  // seconds
    int64_t pass = -1;
    int32_t bucket = -1;
    int32_t call = 0;  // the last that it made; 0: none
    bool in_call = false;
  };
  [[nodiscard]] static Progress progress(const Group& group, int32_t rank);

  /// The ranks have met, and channels stand. This rank's models (`mine`) are built again, as far as all have them, and the
  /// group is confirmed; a rank that joins has models to commit before. Gives as Outcome::source. Collective.
  static int32_t take_place(Group& group, const std::vector<std::shared_ptr<Follower>>& mine);

  struct Outcome {
    int32_t source = -1;  // rank whose state the models of all have now; -1: they had the same, or no model
    int64_t step = -1;    // of that state; -1: none is counted, or a checkpoint has to be loaded
    Keeper::Outcome kept{};
  };
  /// In the place of the broken group. No other call uses it meanwhile. Collective over the ranks that are left.
  static Outcome run(Group& group, const RecoveryRule& rule);
  /// In the last recovery; none before the first, and where the group cannot recover.
  [[nodiscard]] static Changes changes(const Group& group);

  /// The models of all ranks are built. Collective.
  static void confirm(Group& group, const std::vector<std::shared_ptr<Follower>>& followers);

 private:
  static int32_t try_until_whole(Group& group, const RecoveryRule& rule, std::unique_ptr<Group::Impl>& broken);
  static Outcome finish(Group& group, const std::vector<bootstrap::Member>& before, int32_t source);
};

}  // namespace ddp::group
