// Rank 0's state machine together with the ranks' machines, without sockets: every message goes through a queue of the test, which
// may delay, cut or mix connections as a network does. Time is a number.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "comm/control/client_state.hpp"
#include "comm/control/server_state.hpp"
#include "support/check.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

constexpr int64_t kMs = 1'000'000;

// The numbers of connections rise; there is room for strangers between those of ranks.
constexpr ConnectionId kSpread = 10'000;
ConnectionId id_of(size_t i) { return kSpread * (i + 1); }

Member member_of(int32_t rank) {
  Member member;
  member.rank = rank;
  member.host = "h" + std::to_string(rank);
  member.pid = 100 + rank;
  return member;
}

// One rank and its connection.
struct Peer {
  Peer(int32_t number, int32_t ranks, int64_t left_ms)
      : state({member_of(number), ranks, 100, 1'000, left_ms, left_ms}), rank(number), size(ranks) {}
  ClientState state;
  int32_t rank, size;
  bool open = false, server_open = false;
  bool finishing = false;  // the server has said its last word
  std::deque<Frame> to_server, to_client;
  bool joined = false, lost = false;
  std::optional<Error> refused, failed;
  std::vector<std::vector<std::string>> answers;
  std::vector<Error> wrong;
};

class World {
 public:
  World(int32_t size, int32_t server_size, int64_t left_ms = 5'000)
      : server_(ServerConfig{server_size, auth::group_id("job", ""), "token", 100, 1'000}) {
    for (int32_t rank = 0; rank < size; ++rank) add(rank, size, left_ms);
  }
  explicit World(int32_t size) : World(size, size) {}

  Peer& add(int32_t rank, int32_t size, int64_t left_ms = 5'000) {
    peers_.push_back(std::make_unique<Peer>(rank, size, left_ms));
    return *peers_.back();
  }
  Peer& operator[](size_t i) { return *peers_[i]; }

  void connect(size_t i) {
    Peer& peer = *peers_[i];
    const auth::Nonce nonce = auth::random_nonce();
    server_.connected(id_of(i), nonce, now);
    peer.open = peer.server_open = true;
    messages::Hello hello;
    hello.group = auth::group_id("job", "");
    hello.rank = peer.rank;
    hello.size = peer.size;
    hello.nonce = auth::random_nonce();
    hello.proof = auth::prove(auth::Token("token"), auth::Role::kClient, {nonce, hello.nonce, hello.group, hello.rank, hello.size});
    to_server(i, {FrameType::kHello, messages::write(hello)});
    peer.to_client.clear();  // banner and welcome were for the door
    peer.state.start(now);
    obey_client(peer);
  }

  // The process is gone.
  void kill(size_t i) {
    Peer& peer = *peers_[i];
    peer.open = false;
    peer.to_server.clear();
    if (std::exchange(peer.server_open, false)) server_.closed(id_of(i), now);
    obey_server();
  }

  void tick(int64_t ms, bool clients = true) {
    now += ms * kMs;
    server_.tick(now);
    obey_server();
    if (!clients) return;
    for (auto& peer : peers_) {
      if (!peer->open) continue;
      peer->state.tick(now, 3, 1);
      obey_client(*peer);
    }
  }
  void stop(size_t i) { stopped_[i] = true; }

  // Deliver one waiting message of connection i; direction by `up`. False if there is none.
  bool deliver(size_t i, bool up) {
    Peer& peer = *peers_[i];
    if (up) {
      if (peer.to_server.empty()) return false;
      Frame frame = std::move(peer.to_server.front());
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
    Frame frame = std::move(peer.to_client.front());
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
  void gather(size_t i, const std::string& what, const std::string& blob, int64_t left_ms = 0) {
    Peer& peer = *peers_[i];
    peer.state.gather(std::make_shared<const Body>(messages::write(++sequence_[i], left_ms, left_ms, what, blob)));
    obey_client(peer);
  }
  void leave(size_t i) {
    peers_[i]->state.leave();
    obey_client(*peers_[i]);
  }
  void abort(size_t i, const Error& cause) {
    peers_[i]->state.abort(cause);
    obey_client(*peers_[i]);
  }
  size_t count() const { return peers_.size(); }
  /// Bytes of a stranger.
  void stranger(ConnectionId id, FrameType type, const std::string& body) {
    server_.connected(id, auth::random_nonce(), now);
    try {
      server_.frame(id, {type, body}, now);
    } catch (const Error& error) {
      server_.broke(id, error.text(), now);
    }
    obey_server();
  }

  int64_t now = kMs;

 private:
  void to_server(size_t i, Frame frame) {
    try {
      server_.frame(id_of(i), std::move(frame), now);
    } catch (const Error& error) {
      peers_[i]->server_open = false;
      server_.broke(id_of(i), error.text(), now);
    }
    obey_server();
  }
  void obey_server() {
    for (ServerAction& action : server_.take()) {
      if (action.to == 0 || action.to % kSpread != 0) continue;
      Peer& peer = *peers_[action.to / kSpread - 1];
      if (action.kind == ServerAction::Kind::kSend && peer.server_open) peer.to_client.push_back({action.type, action.body->bytes()});
      if (action.kind == ServerAction::Kind::kFinish) peer.finishing = true;
      if (action.kind == ServerAction::Kind::kDrop) peer.server_open = false;
    }
  }
  void obey_client(Peer& peer) {
    for (ClientAction& action : peer.state.take()) {
      switch (action.kind) {
        case ClientAction::Kind::kSend: peer.to_server.push_back({action.type, action.body->bytes()}); break;
        case ClientAction::Kind::kJoined: peer.joined = true; break;
        case ClientAction::Kind::kLost: peer.lost = true; break;
        case ClientAction::Kind::kRefused: peer.refused = action.error; break;
        case ClientAction::Kind::kFailed:
          expect(!peer.failed.has_value(), "a group fails once");
          peer.failed = action.error;
          break;
        case ClientAction::Kind::kAnswer:
          if (action.error.has_value()) peer.wrong.push_back(*action.error);
          else peer.answers.push_back(action.blobs);
          break;
        case ClientAction::Kind::kProgress:
        case ClientAction::Kind::kFinish: break;
      }
    }
  }

  ServerState server_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<size_t, uint64_t> sequence_;
  std::map<size_t, bool> stopped_;
};

void formed(World& world) {
  for (size_t i = 0; i < world.count(); ++i) world.connect(i);
  world.run();
  for (size_t i = 0; i < world.count(); ++i) expect(world[i].joined, "rank " + std::to_string(i) + " has joined");
}

void a_group_forms_and_gathers(void**) {
  World world(3);
  formed(world);
  for (size_t i : {2, 0, 1}) world.gather(i, "w", std::string(1, static_cast<char>('a' + i)));
  world.run();
  for (size_t i = 0; i < 3; ++i) {
    expect_equal(world[i].answers.size(), size_t{1}, "answers");
    expect(world[i].answers[0] == std::vector<std::string>({"a", "b", "c"}), "in rank order");
  }
}

void offenders_are_refused_and_the_others_wait(void**) {
  World world(0, 3);
  world.add(0, 3);
  world.add(1, 3);
  world.add(1, 3);
  world.add(2, 4);
  for (size_t i = 0; i < 4; ++i) {
    world.connect(i);
    world.run();
  }
  expect(world[2].refused.has_value() && world[2].refused->status() == DDP_ERROR_INVALID_ARGUMENT, "a duplicate is refused");
  expect_contains(world[2].refused->text(), "rank 1 (host h1, pid 101)");
  expect(world[3].refused.has_value() && world[3].refused->status() == DDP_ERROR_MISMATCH, "another size is refused");
  expect_contains(world[3].refused->text(), "4");
  expect_contains(world[3].refused->text(), "3");
  world.add(2, 3);
  world.connect(4);
  world.run();
  expect(world[0].joined && world[1].joined && world[4].joined, "the right ones form the group");
}

void those_who_did_not_come_are_named(void**) {
  World world(0, 4);
  world.add(0, 4, 700);
  world.add(2, 4);
  world.connect(0);
  world.connect(1);
  for (int i = 0; i < 8; ++i) {
    world.run();
    world.tick(100);
  }
  world.run();
  for (size_t i = 0; i < 2; ++i) {
    expect(world[i].refused.has_value() && world[i].refused->status() == DDP_ERROR_TIMED_OUT, "all wait in vain");
    expect_contains(world[i].refused->text(), "ranks 1 and 3 of 4");
  }
}

void a_rank_that_dies_before_the_group_forms_may_come_again(void**) {
  World world(2);
  world.connect(0);
  world.connect(1);
  world.kill(1);
  world.run();
  expect(!world[0].joined, "one is missing");
  world.add(1, 2);
  world.connect(2);
  world.run();
  expect(world[0].joined && world[2].joined, "the second try counts");
}

void silence_is_death(void**) {
  World world(3);
  formed(world);
  world.stop(1);
  for (int i = 0; i < 12; ++i) {
    world.tick(100, false);
    for (const size_t r : {size_t{0}, size_t{2}}) {
      world[r].state.tick(world.now, 3, 1);
      for (auto& action : world[r].state.take())
        if (action.kind == ClientAction::Kind::kSend) world[r].to_server.push_back({action.type, action.body->bytes()});
    }
    world.run();
  }
  for (const size_t r : {size_t{0}, size_t{2}}) {
    expect(world[r].failed.has_value() && world[r].failed->status() == DDP_ERROR_PEER_FAILED, "the others know");
    expect_contains(world[r].failed->text(), "rank 1 (host h1, pid 101) was silent for more than 1 s");
  }
}

void a_consequence_gives_way_to_its_cause(void**) {
  World world(3);
  formed(world);
  world.abort(1, Error(DDP_ERROR_PEER_FAILED, "connection reset"));
  world.run();
  world.tick(100);
  world.kill(2);
  world.run();
  expect_contains(world[0].failed->text(), "rank 2 (host h2, pid 102) is gone");
}

void a_report_without_a_better_cause_holds(void**) {
  World world(3);
  formed(world);
  world.abort(1, Error(DDP_ERROR_PEER_FAILED, "connection reset"));
  world.leave(1);
  world.run();
  for (int i = 0; i < 3; ++i) world.tick(100);
  world.run();
  expect_equal(world[0].failed->text(), std::string("connection reset"), "text");
  expect_equal(world[2].failed->text(), std::string("connection reset"), "text");
}

void strangers_change_nothing(void**) {
  World world(2);
  world.connect(0);
  for (ConnectionId id = kSpread + 100; id < kSpread + 400; ++id) {
    world.stranger(id, static_cast<FrameType>(1 + id % kLastFrameType), std::string(id % 200, 'x'));
    messages::Hello hello;  // right in form, wrong in proof
    world.stranger(1'000 + id, FrameType::kHello, messages::write(hello));
  }
  world.connect(1);
  world.run();
  expect(world[0].joined && world[1].joined, "the group forms");
}

// Random events on random connections: whatever happens, answers are complete and equal, and there is at most one cause, the same
// on all ranks that did not make it.
void any_order_of_events_leaves_one_story(void**) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::string name = "seed " + std::to_string(seed);
    uint64_t draw = 0;
    const auto random = [&](uint64_t below) { return philox_u64(seed, 1, draw++) % below; };
    const auto size = static_cast<int32_t>(1 + random(5));
    World world(size);
    formed(world);
    std::vector<int> asked(static_cast<size_t>(size), 0);
    std::vector<bool> out(static_cast<size_t>(size), false);
    for (int event = 0; event < 200; ++event) {
      const size_t i = random(static_cast<uint64_t>(size));
      const uint64_t kind = random(100);
      if (kind < 70) world.deliver(i, random(2) == 0);
      else if (kind < 90 && !out[i] && asked[i] == static_cast<int>(world[i].answers.size()))
        world.gather(i, "g", std::to_string(i) + ":" + std::to_string(asked[i]++));
      else if (kind < 97) world.tick(10);
      else if (seed % 2 == 0 && !out[i]) {
        out[i] = true;
        if (kind == 97) world.kill(i);
        else if (kind == 98) world.leave(i);
        else world.abort(i, Error(DDP_ERROR_ABORTED, "by " + std::to_string(i)));
      }
    }
    world.run();
    for (int i = 0; i < 30; ++i) world.tick(10), world.run();
    std::string cause;
    for (size_t i = 0; i < world.count(); ++i) {
      for (size_t round = 0; round < world[i].answers.size(); ++round)
        for (int32_t r = 0; r < size; ++r)
          expect_equal(world[i].answers[round][static_cast<size_t>(r)], std::to_string(r) + ":" + std::to_string(round), name);
      expect(world[i].wrong.empty(), name + ": nobody is told of a mismatch");
      if (out[i] || !world[i].failed.has_value()) continue;
      if (cause.empty()) cause = world[i].failed->text();
      expect_equal(world[i].failed->text(), cause, name);
    }
    const bool broken = std::find(out.begin(), out.end(), true) != out.end();
    for (size_t i = 0; i < world.count(); ++i)
      if (!out[i]) expect(world[i].failed.has_value() == broken, name + ": a broken group is known to all, and no other is");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(a_group_forms_and_gathers),
      ddp_test(offenders_are_refused_and_the_others_wait),
      ddp_test(those_who_did_not_come_are_named),
      ddp_test(a_rank_that_dies_before_the_group_forms_may_come_again),
      ddp_test(silence_is_death),
      ddp_test(a_consequence_gives_way_to_its_cause),
      ddp_test(a_report_without_a_better_cause_holds),
      ddp_test(strangers_change_nothing),
      ddp_test(any_order_of_events_leaves_one_story),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
