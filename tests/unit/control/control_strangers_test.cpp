// SPDX-License-Identifier: Apache-2.0
// Strangers at rank 0's port as events: how many may wait, who goes for the next one, and that an honest rank gets in.

#include "control/server_state.hpp"
#include "support/check.hpp"

using namespace ddp::bootstrap;

constexpr size_t kMost = 64;

class Door {
 public:
  explicit Door(uint64_t seed) : random_(seed), server_(config()) {}
  ConnectionId connect() {
    auth::Nonce nonce{};
    const uint64_t bits = random_();
    std::memcpy(nonce.data(), &bits, sizeof bits);
    server_.connected(++last_, nonce, 1);
    waiting_.insert(last_);
    look();
    return last_;
  }
  bool drop() {
    const bool dropped = server_.drop_unauthenticated();
    look();
    return dropped;
  }
  void end(ConnectionId id) {
    server_.closed(id, 2);
    waiting_.erase(id);
  }
  [[nodiscard]] const std::set<ConnectionId>& waiting() const { return waiting_; }

 private:
  static ServerConfig config() {
    ServerConfig config;
    config.size = 2;
    config.most_unauthenticated = kMost;
    return config;
  }
  void look() {
    for (const ServerAction& action : server_.take())
      if (action.kind == ServerAction::Kind::kDrop) waiting_.erase(action.to);
  }
  std::mt19937_64 random_;
  ServerState server_;
  ConnectionId last_ = 0;
  std::set<ConnectionId> waiting_;
};

ddp_case(no_more_wait_than_may) {
  Door door(15);
  for (int i = 0; i < 5'000; ++i) {
    door.connect();
    expect(door.waiting().size() <= kMost, "waiting: " + std::to_string(door.waiting().size()));
  }
  expect(door.waiting().size() == kMost, "as many as may");
}

// As many strangers come after it as may wait: with the oldest first it would never stay.
ddp_case(an_honest_connection_can_outlive_a_flood) {
  int stays = 0;
  for (uint64_t seed = 0; seed < 1'000; ++seed) {
    Door door(seed);
    for (size_t i = 0; i < kMost; ++i) door.connect();
    const ConnectionId honest = door.connect();
    for (size_t i = 0; i < kMost; ++i) door.connect();
    stays += static_cast<int>(door.waiting().count(honest));
  }
  // (1 - 1 / 65)^65, some 0.365, with a standard deviation of 0.015
  expect(stays > 300 && stays < 430, "stays in " + std::to_string(stays) + " of 1000 floods");
}

ddp_case(room_can_be_made_until_nobody_waits) {
  Door door(7);
  expect(!door.drop(), "nobody is there");
  for (int i = 0; i < 10; ++i) door.connect();
  door.end(*door.waiting().begin());
  for (int i = 0; i < 9; ++i) expect(door.drop(), "one goes");
  expect(!door.drop() && door.waiting().empty(), "all have gone");
}
