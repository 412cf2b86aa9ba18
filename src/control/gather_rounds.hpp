// SPDX-License-Identifier: Apache-2.0
// The rounds of gather(): the contribution of each rank, when a round is complete, and when ranks disagree. Pure: no
// threads, no clock, no sockets; used by the TCP server's state machine and by the in-memory hub.
//
// Every rank's n-th call belongs to round n. A round whose names differ fails for all ranks, also for those that come later,
// and the rounds after it are not touched. Cost: one move per blob. Threads: the owner's lock.
// Tested by unit/control/gather_rounds_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/control.hpp"
#include "control/user_call.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {

class GatherRounds {
 public:
  /// `members` outlives the board; it names the ranks in errors.
  explicit GatherRounds(const std::vector<Member>& members);

  /// What came of a contribution. If `to` is not empty, these ranks get the answer for round `sequence`: `blobs` or `error`.
  struct Answer {
    uint64_t sequence = 0;
    std::vector<int32_t> to;
    std::vector<std::string> blobs;
    std::optional<Error> error;
  };

  /// The number that the rank's next contribution will have, from 1.
  [[nodiscard]] uint64_t next_sequence(int32_t rank) const { return next_[static_cast<size_t>(rank)]; }

  /// Rank's next contribution. `deadline_ns` (INT64_MAX: none) and `limit_ms` are used by overdue(), `call` by error texts.
  [[nodiscard]] Answer add(int32_t rank, std::string_view what, std::string blob, int64_t deadline_ns, int64_t limit_ms,
                           UserCall call = UserCall::kNone);

  struct Overdue {
    std::string call;  // as describe_call() gives it
    int64_t limit_ms = 0;
    std::vector<int32_t> missing;
  };
  /// The first round in which a rank has waited longer than its limit.
  [[nodiscard]] std::optional<Overdue> overdue(int64_t now_ns) const;

 private:
  struct Round {
    std::string what;
    UserCall call = UserCall::kNone;
    int32_t first = -1;  // who named it
    std::vector<std::optional<std::string>> blobs;
    int32_t arrived = 0;
    size_t bytes = 0;
    int64_t deadline_ns = INT64_MAX;
    int64_t limit_ms = 0;
    std::optional<Error> error;
  };
  void judge(Round& round, int32_t rank, std::string_view what, UserCall call);

  const std::vector<Member>* members_;
  std::vector<uint64_t> next_;
  std::map<uint64_t, Round> rounds_;
};

}  // namespace ddp::bootstrap
