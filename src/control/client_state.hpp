// SPDX-License-Identifier: Apache-2.0
// A rank's side of the control plane, once it was admitted, as a state machine: what happened goes in, what is to be done
// comes out. No sockets, no threads, no clock of its own. One thread.
// Tested by unit/control/control_client_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/codec.hpp"
#include "control/control.hpp"
#include "control/messages.hpp"
#include "control/opening.hpp"
#include "os/awake_clock.hpp"

namespace ddp::bootstrap {

struct ClientConfig {
  Member me;
  int32_t size = 1;
  int64_t heartbeat_ms = 1'000;
  int64_t dead_after_ms = 10'000;
  int64_t left_ms = 0;    // until the rendezvous is over; 0: never
  int64_t limit_ms = 0;   // the same from its beginning
  bool recovers = false;  // me.rank is an id; rank and size come with the table
  std::optional<Opening> opening{};
};

/// The first messages of a rank after its proof.
struct FirstWord {
  FrameType type = FrameType::kJoin;
  SharedBody body;
};
[[nodiscard]] std::vector<FirstWord> first_words(const ClientConfig& config);

/// To be done by the owner, in this order. Made whole before it is in the list: the owner acts on the list also when memory
/// ran out in between.
struct ClientAction {
  enum class Kind {
    kSend,      // type, body
    kFinish,    // close once everything is sent
    kJoined,    // rank, members
    kRefused,   // error: rank 0 does not want this rank, or a rank did not come
    kLost,      // the connection ended before the group had formed: look for rank 0 again
    kAnswer,    // sequence, blobs or error
    kProgress,  // ranks
    kFailed,    // error: the group is broken
    kSettled,   // error: the cause that all ranks get; this rank had one of its own
    kLetter,    // rank, letter: from that rank
  };
  Kind kind = Kind::kFinish;
  FrameType type = FrameType::kBeat;
  SharedBody body = {};
  int32_t rank = -1;
  std::vector<Member> members = {};
  uint64_t sequence = 0;
  std::vector<std::string> blobs = {};
  std::vector<messages::Progress> ranks = {};
  std::string letter = {};
  std::optional<Error> error = {};
};

class ClientState {
 public:
  explicit ClientState(ClientConfig config);

  /// The connection is there and admitted. `said`: the first messages were sent with the proof.
  void start(int64_t now_ns, bool said = false);
  /// Throws for a frame that breaks the protocol; the owner then calls broke().
  void frame(Frame&& frame, int64_t now_ns);
  void closed(int64_t now_ns);
  void broke(const std::string& how, int64_t now_ns);
  void tick(int64_t system_ns, const Whereabouts& where);

  void gather(SharedBody contribution);
  void blocked(const std::optional<BlockedCall>& blocked);
  void abort(const Error& cause);
  /// The same with an Error as messages write it: written in time, it needs little memory.
  void abort(SharedBody cause);
  void saw_death(int32_t rank);
  void write_letter(int32_t to, std::string text);
  /// Of a recovery, before the group has formed.
  void witness(int32_t id);
  void leave(const messages::Bye& bye);

  /// When this process last resumed after a pause that was long enough for others to count it as dead; 0: never.
  [[nodiscard]] int64_t stood_still_until_ns() const noexcept { return stood_still_until_ns_; }
  /// How often to call tick().
  [[nodiscard]] int64_t tick_ms() const noexcept;
  [[nodiscard]] std::vector<ClientAction> take() { return std::exchange(actions_, {}); }

 private:
  enum class Phase { kNew, kJoining, kRunning, kBroken, kLeft };

  void send(FrameType type, SharedBody body);
  void act(ClientAction action) { actions_.push_back(std::move(action)); }
  void joined(messages::Table&& table);
  void running_frame(Frame&& frame);
  void hear(ClientAction::Kind kind, const Error& cause);
  void lose(const Error& cause);
  void set_clock();

  ClientConfig config_;
  Phase phase_ = Phase::kNew;
  std::optional<Member> server_;
  os::AwakeClock clock_;  // the times below are its
  int64_t heard_ns_ = 0;
  int64_t last_beat_ns_ = 0;
  int64_t stood_still_until_ns_ = 0;  // by the system's clock
  Whereabouts server_where_;
  std::vector<ClientAction> actions_;
};

}  // namespace ddp::bootstrap
