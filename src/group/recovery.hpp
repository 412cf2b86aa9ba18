// Going on with the ranks that are left: what a group needs for that is in survival.hpp.
// Threads: run() alone; the rest from any, but not while it runs.
// Tested by capi/recovery_test.cpp and chaos/kills.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/rendezvous/quorum.hpp"
#include "group/group.hpp"

namespace ddp::group {

class Survival;

using bootstrap::RecoveryRule;

struct Recovery {
  /// What a rank that joins says in the place of the number of its models: it commits those of the others.
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
  };
  [[nodiscard]] static Progress progress(const Group& group, int32_t rank);

  /// In the place of the broken group. No other call uses it meanwhile. Collective over the ranks that are left. Gives the
  /// rank whose state the models of all have now, -1 if they had the same or there is none.
  static int32_t run(Group& group, const RecoveryRule& rule);
};

}  // namespace ddp::group
