// A rank's side of the control plane, once it was admitted, as a state machine: what happened goes in, what is to be done comes
// out. No sockets, no threads, no clock of its own. One thread. Tested by unit/comm/control_client_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/codec.hpp"
#include "comm/control/control.hpp"
#include "comm/control/messages.hpp"

namespace ddp {

struct ClientConfig {
  Member me;
  int32_t size = 1;
  int64_t heartbeat_ms = 1'000;
  int64_t dead_after_ms = 10'000;
  int64_t left_ms = 0;   // until the rendezvous is over; 0: never
  int64_t limit_ms = 0;  // the same from its beginning
};

/// To be done by the owner, in this order.
struct ClientAction {
  enum class Kind {
    kSend,      // type, body
    kFinish,    // close once everything is sent
    kJoined,    // members
    kRefused,   // error: rank 0 does not want this rank, or somebody did not come
    kLost,      // the connection ended before the group had formed: look for rank 0 again
    kAnswer,    // sequence, blobs or error
    kProgress,  // ranks
    kFailed,    // error: the group is broken
  };
  Kind kind = Kind::kFinish;
  FrameType type = FrameType::kBeat;
  SharedBody body;
  std::vector<Member> members;
  uint64_t sequence = 0;
  std::vector<std::string> blobs;
  std::vector<messages::Progress> ranks;
  std::optional<Error> error;
};

class ClientState {
 public:
  explicit ClientState(ClientConfig config);

  /// The connection is there and admitted.
  void start(int64_t now_ns);
  /// Throws for a frame that breaks the protocol; the owner then calls broke().
  void frame(Frame&& frame, int64_t now_ns);
  void closed(int64_t now_ns);
  void broke(const std::string& how, int64_t now_ns);
  void tick(int64_t now_ns, int64_t pass, int32_t bucket);

  void gather(SharedBody contribution);
  void abort(const Error& cause);
  void leave();

  [[nodiscard]] int64_t heartbeat_ms() const noexcept { return config_.heartbeat_ms; }
  [[nodiscard]] std::vector<ClientAction> take() { return std::exchange(actions_, {}); }

 private:
  enum class Phase { kNew, kJoining, kRunning, kBroken, kLeft };

  void send(FrameType type, SharedBody body);
  void act(ClientAction::Kind kind, std::optional<Error> error = std::nullopt);
  void joined(messages::Table&& table);
  void running_frame(Frame&& frame);
  void lose(const Error& cause);

  ClientConfig config_;
  Phase phase_ = Phase::kNew;
  std::optional<Member> server_;
  int64_t heard_ns_ = 0;
  int64_t last_tick_ns_ = 0;
  int64_t last_beat_ns_ = 0;
  int64_t server_pass_ = -1;
  int32_t server_bucket_ = -1;
  std::vector<ClientAction> actions_;
};

}  // namespace ddp
