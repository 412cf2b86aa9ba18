// SPDX-License-Identifier: Apache-2.0
// How the ranks of a broken group meet again, without a rendezvous and whichever ranks have died.
//
// Every rank of a group that can recover listens at an address of its own from the start, and all know all addresses. When
// the group has broken, the lowest rank that is alive serves there, and the others join it. Each rank holds a connection to
// each lower one open: refused is dead, silent is unknown. No rank waits long for one that was silent before, or that is
// unreachable. The serving rank decides when the group forms, and with which ranks (quorum.hpp). Threads: one. Tested by
// unit/discovery/quorum_test.cpp and capi/recovery_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "control/control.hpp"
#include "control/server.hpp"
#include "ddp/group.h"
#include "discovery/join_place.hpp"
#include "discovery/listener.hpp"
#include "discovery/quorum.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// What becomes of a rank that is new and comes to where ranks meet.
enum class NewRanks {
  kTaken,
  kWait  // one has failed in the attempt before: they are asked to come again
};

/// What a rank knows of its group when it has broken.
struct LostGroup {
  int32_t id = 0;                       // of this rank
  int32_t world_rank = -1;              // as in Member
  std::vector<std::string> records;     // of all ranks' addresses, by id
  std::vector<int32_t> suspects;        // ids of those that were silent
  std::vector<Membership> memberships;  // as judge() takes them
  std::vector<ServerConfig::KeptOut> kept_out{};
  NewRanks new_ranks = NewRanks::kTaken;
};

/// Rank 0 of an existing group listens for ranks that want to join it; when it breaks, this is where all meet.
[[nodiscard]] std::unique_ptr<Server> open_lobby(const Listener& listener, const LostGroup& lost,
                                                 const ddp_group_options& options);

/// Join an existing group: wait at the place of its rank 0 until the group admits new ranks. After a refusal that may be
/// temporary it retries. Blocks until the deadline, which is options.rendezvous_timeout_ms from the beginning.
[[nodiscard]] std::unique_ptr<Control> join_standing(const JoinPlace& place, const ddp_group_options& options,
                                                     const os::Deadline& deadline);

/// Meet the ranks that are left. Blocks up to rule.wait_ms and some seconds. Throws TOO_FEW_RANKS or FENCED if this rank
/// cannot continue. `lobby`: rank 0's, which is used up; else NULL.
[[nodiscard]] std::unique_ptr<Control> meet_again(const Listener& listener, const LostGroup& lost, const RecoveryRule& rule,
                                                  const ddp_group_options& options, std::unique_ptr<Server> lobby);

}  // namespace ddp::bootstrap
