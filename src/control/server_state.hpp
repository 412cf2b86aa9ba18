// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the control plane as a state machine: what happened goes in, what is to be done comes out. No sockets, no
// threads, no clock of its own; so every order of events can be tried in a test.
//
// A connection is unauthenticated until its greeting was right, then admitted, then joined when it has sent its identity.
// The group forms when every slot is taken; from then on it can only break, once, with one cause that goes to all: to rank
// 0's own program last, when the others know it, because rank 0 may end as soon as it gets the cause, and its end must not
// become their cause. Causes that are often consequences (a rank reports that its data connection failed) wait
// kSecondaryCauseMs for a better one (the connection of the rank that died). Cost: an event is O(1), except for answers to
// all and ticks, O(ranks). One thread. Tested by unit/control/control_server_test.cpp and
// unit/control/control_strangers_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/auth.hpp"
#include "control/codec.hpp"
#include "control/control.hpp"
#include "control/deadlock.hpp"
#include "control/gather_rounds.hpp"
#include "control/limits.hpp"
#include "control/messages.hpp"
#include "control/texts.hpp"
#include "os/awake_clock.hpp"

namespace ddp::bootstrap {

using ConnectionId = uint64_t;

/// In the place of an id: a rank that was not in the group.
inline constexpr int32_t kNewRank = -1;

struct ServerConfig {
  int32_t size = 1;
  auth::GroupId group{};
  auth::Token token;
  int64_t heartbeat_ms = 1'000;
  int64_t dead_after_ms = 10'000;
  std::string place;  // where rank 0 listens and what to do if that is out of reach, for the error text; "" if it cannot be
  std::string placement{};  // which ranks are on which host, for the error text; as texts::expected_on() takes it
  int32_t world_rank = -1;  // of rank 0, as in Member
  size_t most_unauthenticated = limits::kUnauthenticatedPending;
  bool recovers = false;  // ranks of a broken group meet: `size` is how many it ever had, ranks are their ids, and the
                          // group forms with those that form() names, who are numbered anew
  std::vector<int32_t> fenced{};  // ids that the others continued without
  bool takes_new = true;          // new ranks; else they are asked to come again
  int32_t most_ranks = 0;         // of them with ranks that are new, which are turned away beyond; 0: any number
  struct KeptOut {
    std::string host;  // as lasting_host() gives it
    size_t deaths = 0;
    int64_t until_ns = 0;
  };
  std::vector<KeptOut> kept_out{};  // hosts of which no new rank may come yet
  std::string signpost{};           // not "": no rank joins here; an admitted peer gets this record
};

/// To be done by the owner, in this order.
struct ServerAction {
  enum class Kind {
    kSend,    // type, body
    kSecure,  // keys hold from here on, both ways; frames may be long
    kFinish,  // close once everything is sent
    kDrop,    // close now
    kSeal,    // the group has formed: no further rank may come
  };
  Kind kind = Kind::kDrop;
  ConnectionId to = 0;
  FrameType type = FrameType::kBeat;
  SharedBody body;
  auth::SessionKeys keys{};
};

class ServerState {
 public:
  explicit ServerState(ServerConfig config);

  // Events. The owner then does what take() returns; a connection that was finished or dropped may still say something.
  void connected(ConnectionId id, const auth::Nonce& nonce, int64_t now_ns);
  /// Throws for a frame that breaks the protocol; the owner then calls broke().
  void frame(ConnectionId id, Frame&& frame, int64_t now_ns);
  void closed(ConnectionId id, int64_t now_ns);
  /// The connection sent what cannot be understood.
  void broke(ConnectionId id, const std::string& how, int64_t now_ns);
  void tick(int64_t system_ns);
  /// Of a recovery: the ids of those who are here.
  [[nodiscard]] std::vector<int32_t> present() const;
  /// Of a recovery: the ids of those whose process has ended, as a member that is or was here has seen on its own host.
  [[nodiscard]] const std::vector<int32_t>& witnessed() const noexcept { return witnessed_; }
  /// Of a recovery: the group forms, if exactly these are here.
  void form(const std::vector<int32_t>& ids);
  /// The meeting has failed, for all who are here.
  void dismiss(const Error& why);
  /// Drop an unauthenticated peer, whichever chance picks, if there are more than `most`. False if none was dropped.
  bool drop_unauthenticated(size_t most = 0);
  /// The server is about to end: a cause that waits for a better one is sent now, or no rank would get it.
  void settle();

  [[nodiscard]] std::vector<ServerAction> take() { return std::exchange(actions_, {}); }

 private:
  struct Connection {
    enum class Phase { kUnauthenticated, kAdmitted, kJoined, kOver };
    Phase phase = Phase::kUnauthenticated;
    int64_t since_ns = 0;
    auth::Nonce nonce{};
    int32_t rank = -1;
    int32_t size = 0;
  };
  struct MemberSlot {
    enum class State {
      kFree,
      kTaken,
      kReported,
      kHeard,
      kLeft
    };  // reported: it has reported itself that the group is broken
    State state = State::kFree;
    ConnectionId connection = 0;
    int64_t heard_ns = 0;
    int64_t deadline_ns = INT64_MAX;  // for the others to come
    int64_t limit_ms = 0;
    Whereabouts where{};
    std::optional<messages::Gather> opening{};  // its first contribution, which came with its join
    bool gone_again = false;                    // free, but a member was here
    bool refused = false;                       // free, and a process with another token wanted to be it
    int64_t lost_ns = 0;                        // free, because its connection ended then
  };
  enum class Phase { kForming, kFormed, kBroken };

  [[nodiscard]] static bool is_unproved(Connection::Phase phase) noexcept {
    return phase == Connection::Phase::kUnauthenticated || phase == Connection::Phase::kOver;
  }
  void send(ConnectionId to, FrameType type, SharedBody body);
  void send_to_members(FrameType type, const SharedBody& body);
  void finish(ConnectionId id);
  void drop(ConnectionId id);
  void refuse(ConnectionId id, const Error& why);

  void greet(ConnectionId id, Connection& connection, const messages::Hello& hello);
  void point(ConnectionId id);
  void join(ConnectionId id, Connection& connection, messages::Join&& join, int64_t now_ns);
  [[nodiscard]] std::optional<Error> make_room(int32_t& id, const Member& of, int64_t now_ns);
  [[nodiscard]] bool is_fenced(int32_t id) const;
  /// Why a new rank of this host may not come yet.
  [[nodiscard]] std::optional<Error> kept_out(const Member& newcomer, int64_t now_ns) const;
  void free_slot(int32_t rank) {
    slot_of(rank) = MemberSlot();
    slot_of(rank).gone_again = true;
    --taken_;
  }
  /// A contribution that comes before the group has formed.
  void keep_opening(int32_t rank, messages::Gather&& gather) {
    if (config_.recovers || slot_of(rank).opening.has_value())
      throw Error(DDP_ERROR_IO, "a gather before the group has formed");
    slot_of(rank).opening = std::move(gather);
  }
  /// It may have lost no more than its connection: then it comes again at once.
  void lose(int32_t rank, int64_t system_ns) {
    free_slot(rank);
    slot_of(rank).lost_ns = std::max<int64_t>(clock_.at(system_ns), 1);
  }
  /// Has a rank lost its connection before the group had formed, and not come again?
  [[nodiscard]] std::optional<Error> lost_rank(int64_t now_ns) const;
  void form();
  void witness(int32_t id);
  void renumber();
  void member_frame(Connection& connection, Frame&& frame, int64_t now_ns);
  void gather(int32_t rank, messages::Gather&& gather, int64_t now_ns);
  void pass_on(int32_t from, messages::Letter&& letter);
  void beat(int32_t rank, const messages::Beat& beat);
  void reported(int32_t rank, const Error& cause, int64_t now_ns);
  void gone(int32_t rank);
  void goodbye(int32_t rank, const messages::Bye& bye);
  void declare(const Error& cause);
  void tell_rank0_if_all_heard();
  void tell_rank0();

  void check_hearing(int64_t now_ns);
  void check_unauthenticated(int64_t now_ns);
  void check_silence(int64_t now_ns);
  void check_deadlines(int64_t now_ns);
  void check_deadlock();
  void send_beats(int64_t now_ns);
  [[nodiscard]] messages::Beat progress_now(int64_t now_ns) const;
  [[nodiscard]] texts::Absent absent() const;
  [[nodiscard]] const Member& member(int32_t rank) const { return members_[static_cast<size_t>(rank)]; }
  /// Is it there, and does it not know yet how the group ended?
  [[nodiscard]] bool is_waiting_for(int32_t rank) const {
    const MemberSlot::State state = slots_[static_cast<size_t>(rank)].state;
    return state == MemberSlot::State::kTaken || state == MemberSlot::State::kReported;
  }
  [[nodiscard]] MemberSlot& slot_of(int32_t rank) { return slots_[static_cast<size_t>(rank)]; }

  ServerConfig config_;
  Phase phase_ = Phase::kForming;
  std::map<ConnectionId, Connection> connections_;
  std::vector<Member> members_;
  std::vector<MemberSlot> slots_;
  int32_t taken_ = 0;
  GatherRounds gathers_;
  DeadlockWatch deadlocks_;
  SharedBody cause_;              // while rank 0's own program does not know it
  int64_t hearing_since_ns_ = 0;  // the first tick after it was sent to the others
  struct Suspicion {
    Error cause;
    int64_t since_ns = 0;
  };
  std::optional<Suspicion> suspicion_;  // a cause that waits for a better one
  os::AwakeClock clock_;                // all times below and above are its
  struct Last {
    int64_t tick_ns = 0;
    int64_t beat_ns = 0;
  } last_;
  std::vector<ServerAction> actions_;
  std::vector<int32_t> witnessed_;
};

}  // namespace ddp::bootstrap
