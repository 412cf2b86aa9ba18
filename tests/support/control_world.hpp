// SPDX-License-Identifier: Apache-2.0
// Rank 0's state machine of the control plane together with the ranks' machines, without sockets: every message goes through
// a queue of the test, which may delay, cut or mix connections as a network does. Time is a number.
#pragma once

#include "control/client_state.hpp"
#include "control/server_state.hpp"
#include "support/check.hpp"

namespace ddp::test {

inline constexpr int64_t kMs = 1'000'000;

// The numbers of connections rise; there is room for strangers between those of ranks.
inline constexpr bootstrap::ConnectionId kSpread = 10'000;
inline bootstrap::ConnectionId id_of(size_t i) { return kSpread * (i + 1); }

inline bootstrap::Member member_of(int32_t rank) {
  bootstrap::Member member;
  member.rank = rank;
  member.host = "h" + std::to_string(rank);
  member.pid = 100 + rank;
  return member;
}

// What a connection has carried one way. Bytes: with heads and tags, as they stand on the wire.
struct Traffic {
  int64_t messages = 0, bytes = 0;
  void count(const bootstrap::Body& body) {
    messages += 1;
    bytes += static_cast<int64_t>(bootstrap::kFrameHead + body.bytes().size() + kTag);
  }
  static constexpr size_t kTag = 16;
};

// A message that was sent and not delivered; a message to all ranks is in the list once.
struct Letter {
  bootstrap::FrameType type = bootstrap::FrameType::kBeat;
  bootstrap::SharedBody body;
  [[nodiscard]] bootstrap::Frame frame() const { return {type, body->bytes()}; }
};

// One rank and its connection.
struct Peer {
  Peer(const bootstrap::Member& me, int32_t ranks, int64_t left_ms, bool recovering,
       std::optional<bootstrap::Opening> opening = {})
      : state({me, ranks, 100, 1'000, left_ms, left_ms, recovering, std::move(opening)}),
        rank(me.rank),
        size(ranks),
        recovers(recovering) {}
  bootstrap::ClientState state;
  int32_t rank, size;
  bool recovers;
  bool open = false, server_open = false;
  bool finishing = false;  // the server has sent its last message
  std::deque<Letter> to_server, to_client;
  Traffic up, down;
  bool joined = false, lost = false;
  std::optional<Error> refused, failed, settled;
  std::vector<std::vector<std::string>> answers;
  std::vector<Error> wrong;
};

class ControlWorld {
 public:
  ControlWorld(int32_t size, int32_t server_size, int64_t left_ms = 5'000)
      : server_(
            bootstrap::ServerConfig{server_size, bootstrap::auth::group_id("job", "place", ""), "token", 100, 1'000, ""}) {
    for (int32_t rank = 0; rank < size; ++rank) add(rank, size, left_ms);
  }
  explicit ControlWorld(int32_t size) : ControlWorld(size, size) {}
  /// Of the ranks that `members` are, which may be some of a group that has broken.
  ControlWorld(const bootstrap::ServerConfig& config, const std::vector<bootstrap::Member>& members) : server_(config) {
    for (const bootstrap::Member& member : members)
      peers_.push_back(std::make_unique<Peer>(member, config.size, 5'000, config.recovers));
  }

  Peer& add(int32_t rank, int32_t size, int64_t left_ms = 5'000, std::optional<bootstrap::Opening> opening = {}) {
    peers_.push_back(std::make_unique<Peer>(member_of(rank), size, left_ms, false, std::move(opening)));
    return *peers_.back();
  }
  Peer& operator[](size_t i) { return *peers_[i]; }
  /// The rank of peer i, as another peer that is not connected yet.
  Peer& again(size_t i) {
    const Peer& before = *peers_[i];
    bootstrap::Member member = member_of(before.rank);
    member.id = before.rank;
    peers_.push_back(std::make_unique<Peer>(member, before.size, 5'000, before.recovers));
    return *peers_.back();
  }
  [[nodiscard]] std::vector<int32_t> present() const { return server_.present(); }

  void connect(size_t i) {
    Peer& peer = *peers_[i];
    const bootstrap::auth::Nonce nonce = bootstrap::auth::random_nonce();
    peer.open = peer.server_open = true;
    serve(i, [&] { server_.connected(id_of(i), nonce, now); });
    bootstrap::messages::Hello hello;
    hello.group = bootstrap::auth::group_id("job", "place", "");
    hello.rank = peer.rank;
    hello.size = peer.size;
    hello.nonce = bootstrap::auth::random_nonce();
    hello.proof = bootstrap::auth::prove(bootstrap::auth::Token("token"), bootstrap::auth::Role::kClient,
                                         {nonce, hello.nonce, hello.group, hello.rank, hello.size});
    const auto greeting = std::make_shared<const bootstrap::Body>(bootstrap::messages::write(hello));
    peer.up.count(*greeting);
    to_server(i, {bootstrap::FrameType::kHello, greeting->bytes()});
    peer.to_client.clear();  // banner and welcome were for the door
    peer.state.start(now);
    obey_client(peer);
  }

  // The process has ended.
  void kill(size_t i) {
    Peer& peer = *peers_[i];
    peer.open = false;
    peer.to_server.clear();
    if (std::exchange(peer.server_open, false)) serve(kNone, [&] { server_.closed(id_of(i), now); });
  }

  void tick(int64_t ms, bool clients = true) {
    now += ms * kMs;
    serve(kNone, [&] { server_.tick(now); });
    if (!clients) return;
    for (auto& peer : peers_) {
      if (!peer->open) continue;
      peer->state.tick(now, {3, 1});
      obey_client(*peer);
    }
  }
  void stop(size_t i) { stopped_[i] = true; }

  // Deliver one waiting message of connection i; direction by `up`. False: no message waits.
  bool deliver(size_t i, bool up) {
    Peer& peer = *peers_[i];
    if (up) {
      if (peer.to_server.empty()) return false;
      bootstrap::Frame frame = peer.to_server.front().frame();
      peer.to_server.pop_front();
      if (peer.server_open && !peer.finishing) to_server(i, std::move(frame));
      return true;
    }
    if (peer.to_client.empty()) {
      if (!peer.open || (peer.server_open && !peer.finishing) || stopped_.count(i) != 0) return false;
      peer.open = false;
      peer.state.closed(now);
      obey_client(peer);
      return true;
    }
    if (stopped_.count(i) != 0) return false;
    bootstrap::Frame frame = peer.to_client.front().frame();
    peer.to_client.pop_front();
    if (peer.open) {
      peer.state.frame(std::move(frame), now);
      obey_client(peer);
    }
    return true;
  }
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < peers_.size(); ++i) moved = deliver(i, true) || deliver(i, false) || moved;
    }
  }
  /// All that is under way arrives, and what follows from it leaves; how often that happens until nothing is under way.
  int hops() {
    for (int count = 0;; ++count) {
      std::vector<std::pair<size_t, bool>> letters;
      for (size_t i = 0; i < peers_.size(); ++i) {
        letters.insert(letters.end(), peers_[i]->to_server.size(), {i, true});
        letters.insert(letters.end(), peers_[i]->to_client.size(), {i, false});
      }
      if (letters.empty()) return count;
      for (const auto& [i, up] : letters) deliver(i, up);
    }
  }
  void gather(size_t i, const std::string& what, const std::string& blob, int64_t left_ms = 0) {
    Peer& peer = *peers_[i];
    peer.state.gather(std::make_shared<const bootstrap::Body>(bootstrap::messages::write(
        bootstrap::messages::Gather{++sequence_[i], left_ms, left_ms, bootstrap::UserCall::kNone, what, blob})));
    obey_client(peer);
  }
  void blocked(size_t i, const std::optional<bootstrap::BlockedCall>& blocked) {
    peers_[i]->state.blocked(blocked);
    obey_client(*peers_[i]);
  }
  void leave(size_t i, bootstrap::Leaving how = bootstrap::Leaving::kGroup) {
    peers_[i]->state.leave({how, {}});
    obey_client(*peers_[i]);
  }
  void abort(size_t i, const Error& cause) {
    peers_[i]->state.abort(cause);
    obey_client(*peers_[i]);
  }
  /// Rank i's process is seen to have ended by rank `by`, while its connection is still open.
  void see_death(size_t by, int32_t i) {
    peers_[by]->state.saw_death(i);
    obey_client(*peers_[by]);
  }
  size_t count() const { return peers_.size(); }
  /// Of a recovery: the group forms with these.
  void form(const std::vector<int32_t>& ids) {
    serve(kNone, [&] { server_.form(ids); });
  }
  /// Bytes of a stranger.
  void stranger(bootstrap::ConnectionId id, bootstrap::FrameType type, const std::string& body) {
    server_.connected(id, bootstrap::auth::random_nonce(), now);
    try {
      server_.frame(id, {type, body}, now);
    } catch (const Error& error) {
      server_.broke(id, error.text(), now);
    }
    obey_server();
  }

  int64_t now = kMs;
  /// Runs each event of the server: where memory shall run out, it throws std::bad_alloc.
  std::function<void(const std::function<void()>&)> lacking = [](const auto& body) { body(); };
  int lacked = 0;
  bool has_formed = false, gave_up = false;  // the server

 private:
  static constexpr size_t kNone = SIZE_MAX;
  void to_server(size_t i, bootstrap::Frame frame) {
    try {
      serve(i, [&] { server_.frame(id_of(i), std::move(frame), now); });
    } catch (const Error& error) {
      peers_[i]->server_open = false;
      server_.broke(id_of(i), error.text(), now);
      obey_server();
    }
  }
  // As Server does when memory runs out: until the group has formed it costs the connection that it was for.
  void serve(size_t i, const std::function<void()>& body) {
    try {
      lacking(body);
    } catch (const std::bad_alloc&) {
      ++lacked;
      obey_server();
      if (has_formed) {
        gave_up = true;
      } else if (i != kNone) {
        peers_[i]->server_open = false;
        server_.broke(id_of(i), "", now);
      }
    }
    obey_server();
  }
  static void send(std::deque<Letter>& queue, Traffic& traffic, bootstrap::FrameType type,
                   const bootstrap::SharedBody& body) {
    traffic.count(*body);
    queue.push_back({type, body});
  }
  void obey_server() {
    for (bootstrap::ServerAction& action : server_.take()) {
      has_formed = has_formed || action.kind == bootstrap::ServerAction::Kind::kSeal;
      if (action.to == 0 || action.to % kSpread != 0) continue;
      Peer& peer = *peers_[action.to / kSpread - 1];
      if (action.kind == bootstrap::ServerAction::Kind::kSend && peer.server_open)
        send(peer.to_client, peer.down, action.type, action.body);
      if (action.kind == bootstrap::ServerAction::Kind::kFinish) peer.finishing = true;
      if (action.kind == bootstrap::ServerAction::Kind::kDrop) peer.server_open = false;
    }
  }
  void obey_client(Peer& peer) {
    for (bootstrap::ClientAction& action : peer.state.take()) {
      switch (action.kind) {
        case bootstrap::ClientAction::Kind::kSend: send(peer.to_server, peer.up, action.type, action.body); break;
        case bootstrap::ClientAction::Kind::kJoined: peer.joined = true; break;
        case bootstrap::ClientAction::Kind::kLost: peer.lost = true; break;
        case bootstrap::ClientAction::Kind::kRefused: peer.refused = action.error; break;
        case bootstrap::ClientAction::Kind::kFailed:
          expect(!peer.failed.has_value(), "a group fails once");
          peer.failed = action.error;
          break;
        case bootstrap::ClientAction::Kind::kAnswer:
          if (action.error.has_value())
            peer.wrong.push_back(*action.error);
          else
            peer.answers.push_back(action.blobs);
          break;
        case bootstrap::ClientAction::Kind::kSettled: peer.settled = action.error; break;
        case bootstrap::ClientAction::Kind::kLetter:  // unit/control/letters
        case bootstrap::ClientAction::Kind::kProgress:
        case bootstrap::ClientAction::Kind::kFinish: break;
      }
    }
  }

  bootstrap::ServerState server_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<size_t, uint64_t> sequence_;
  std::map<size_t, bool> stopped_;
};

inline void formed(ControlWorld& world) {
  for (size_t i = 0; i < world.count(); ++i) world.connect(i);
  world.run();
  for (size_t i = 0; i < world.count(); ++i) expect(world[i].joined, "rank " + std::to_string(i) + " has joined");
}

}  // namespace ddp::test
