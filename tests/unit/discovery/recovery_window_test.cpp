// SPDX-License-Identifier: Apache-2.0
// Hundreds of ranks of a broken group meet again, without sockets: the leader of each, when it looks at 64 lower ones
// at a time (find_leader), and how the serving rank numbers the ranks that come (ServerState).

#include "discovery/quorum.hpp"
#include "support/check.hpp"
#include "support/control_world.hpp"

using namespace ddp::bootstrap;

constexpr int32_t kNobody = -1;

/// Ranks that look at each other in rounds. A connection shows in the third round what is at its other end.
class Ranks {
 public:
  Ranks(int32_t size, uint32_t seed)
      : size_(size),
        is_(static_cast<size_t>(size)),
        follows_(is_.size()),
        first_look_(is_.size() * is_.size(), -1),
        random_(seed) {
    members_.resize(is_.size());
    std::iota(members_.begin(), members_.end(), 0);
  }
  void die(int32_t first, int32_t count) { set(first, count, Is::kDead); }
  /// They live, and never come.
  void hang(int32_t first, int32_t count) { set(first, count, Is::kBusy); }
  /// From this round on no rank waits for ranks that have not come.
  void give_up_at(int32_t round) { given_up_at_ = round; }

  /// Gives the round in which one rank serves and all others that come follow it; -1: not before this one. In each round
  /// the ranks act in another order.
  int32_t run(int32_t limit) {
    for (; round_ < limit; ++round_) {
      Membership order = members_;
      std::shuffle(order.begin(), order.end(), random_);
      for (const int32_t rank : order) act(rank);
      if (leader() != kNobody && all_follow(leader())) return round_;
    }
    return -1;
  }
  [[nodiscard]] int32_t leader() const { return servers().size() == 1 ? servers().front() : kNobody; }
  [[nodiscard]] int32_t most_looked_at() const noexcept { return most_looked_at_; }

 private:
  enum class Is { kHere, kServing, kFollowing, kBusy, kDead };
  static size_t at(int32_t rank) noexcept { return static_cast<size_t>(rank); }
  void set(int32_t first, int32_t count, Is is) { std::fill_n(is_.begin() + first, count, is); }

  [[nodiscard]] std::vector<int32_t> servers() const {
    std::vector<int32_t> found;
    for (int32_t rank = 0; rank < size_; ++rank)
      if (is_[at(rank)] == Is::kServing) found.push_back(rank);
    return found;
  }
  [[nodiscard]] bool all_follow(int32_t leader) const {
    for (int32_t rank = 0; rank < size_; ++rank)
      if (is_[at(rank)] == Is::kHere || (is_[at(rank)] == Is::kFollowing && follows_[at(rank)] != leader)) return false;
    return true;
  }

  Sight look(int32_t by, int32_t other) {
    int32_t& first = first_look_[at(by) * is_.size() + at(other)];
    if (first < 0) first = round_;
    if (round_ - first < 2) return {Standing::kExpected, false};
    switch (is_[at(other)]) {
      case Is::kDead: return {Standing::kDead, false};
      case Is::kServing: return {Standing::kExpected, true};
      case Is::kHere:
      case Is::kFollowing:
      case Is::kBusy: break;
    }
    return {round_ >= given_up_at_ ? Standing::kSilent : Standing::kExpected, false};
  }

  void act(int32_t rank) {
    Is& is = is_[at(rank)];
    if (is == Is::kDead || is == Is::kBusy) return;
    if (is == Is::kServing) {  // it yields to a lower one
      for (int32_t other = 0; other < rank; ++other)
        if (look(rank, other).serves) is = Is::kHere;
      return;
    }
    if (is == Is::kFollowing && is_[at(follows_[at(rank)])] == Is::kServing) return;
    is = Is::kHere;
    int32_t looked_at = 0;
    const std::optional<int32_t> followed = find_leader(members_, rank, [&](int32_t other) {
      expect(other < rank, "a higher rank is not looked at");
      const Sight sight = look(rank, other);
      looked_at += sight.standing == Standing::kExpected ? 1 : 0;
      return sight;
    });
    most_looked_at_ = std::max(most_looked_at_, looked_at);
    if (!followed.has_value()) is = Is::kServing;
    if (!followed.has_value() || !look(rank, *followed).serves) return;
    is = Is::kFollowing;
    follows_[at(rank)] = *followed;
  }

  int32_t size_;
  std::vector<Is> is_;
  std::vector<int32_t> follows_;
  Membership members_;
  std::vector<int32_t> first_look_;  // round, by rank and other rank
  int32_t round_ = 0;
  int32_t given_up_at_ = INT32_MAX;
  int32_t most_looked_at_ = 0;
  std::mt19937 random_;
};

/// Two rounds show each 64 that do not come; the leader serves, others that did so too yield, and all see it in some more.
int32_t rounds_behind(int32_t absent) { return 2 * (absent / kLookedAt + 1) + 8; }

ddp_case(all_follow_the_lowest) {
  for (uint32_t seed = 1; seed <= 5; ++seed)
    for (const int32_t dead : {0, 1, 63, 64, 65, 128, 150, 199}) {
      Ranks ranks(200, seed);
      ranks.die(0, dead);
      const int32_t round = ranks.run(100);
      const std::string what = "seed " + std::to_string(seed) + ", " + std::to_string(dead) + " dead: round " +
                               std::to_string(round) + ", leader " + std::to_string(ranks.leader());
      expect(ranks.leader() == dead && round >= 0 && round <= rounds_behind(dead), what);
      expect(ranks.most_looked_at() <= kLookedAt, "at most 64 at a time: " + std::to_string(ranks.most_looked_at()));
      if (dead >= kLookedAt) expect_equal(ranks.most_looked_at(), kLookedAt, "the window was full");
    }
}

/// A window full of ranks that live and never come is passed when no rank waits for them any more.
ddp_case(ranks_that_hang_hold_nobody_up_for_long) {
  constexpr int32_t kGivesUp = 30, kDead = 40;
  for (uint32_t seed = 1; seed <= 5; ++seed)
    for (const int32_t hanging : {1, 64, 100}) {
      Ranks ranks(200, seed);
      ranks.die(0, kDead);
      ranks.hang(kDead, hanging);
      expect_equal(ranks.run(kGivesUp), -1, "they are waited for");
      ranks.give_up_at(kGivesUp);
      const int32_t round = ranks.run(2 * kGivesUp + 20);
      const std::string what = "seed " + std::to_string(seed) + ", " + std::to_string(hanging) + " hang: round " +
                               std::to_string(round) + ", leader " + std::to_string(ranks.leader());
      expect(ranks.leader() == kDead + hanging && round >= kGivesUp, what);
      expect(round <= kGivesUp + rounds_behind(hanging), what);
      expect(ranks.most_looked_at() <= kLookedAt, "at most 64 at a time");
    }
}

ddp_case(the_dead_may_be_anywhere) {
  Ranks ranks(500, 1);
  for (int32_t first = 0; first + 5 <= 500; first += 7) ranks.die(first, 5);
  const int32_t round = ranks.run(200);
  expect(ranks.leader() == 5, "the lowest that lives leads: " + std::to_string(ranks.leader()));
  expect(round >= 0 && round <= rounds_behind(5), "soon: " + std::to_string(round));
}

/// The serving rank gives new numbers to the ranks that have come, after the loss of more than two windows of old ones.
ddp_case(the_leader_forms_the_group_of_those_who_are_left) {
  constexpr int32_t kSize = 200, kDead = 150;
  ServerConfig config;
  config.size = kSize;
  config.group = auth::group_id("job", "place", "");
  config.token = "token";
  config.heartbeat_ms = 100;
  config.dead_after_ms = 1'000;
  config.recovers = true;
  std::vector<Member> members;
  std::vector<int32_t> ids;
  for (int32_t id = kDead; id < kSize; ++id) {
    members.push_back(member_of(id));
    members.back().id = id;
    ids.push_back(id);
  }
  ControlWorld world(config, members);
  for (size_t i = 0; i < world.count(); ++i) world.connect(i);
  world.run();
  std::vector<int32_t> too_early(ids.begin(), ids.end() - 1);
  world.form(too_early);
  world.run();
  expect(!world[0].joined, "one more has come than the leader counted");
  world.form(ids);
  world.run();
  for (size_t i = 0; i < world.count(); ++i) {
    expect(world[i].joined, "id " + std::to_string(ids[i]) + " is in the group");
    world.gather(i, "ids", std::to_string(ids[i]));
  }
  world.run();
  for (size_t i = 0; i < world.count(); ++i) {
    expect_equal(world[i].answers.size(), size_t{1}, "the exchange");
    for (size_t rank = 0; rank < ids.size(); ++rank)
      expect_equal(world[i].answers[0][rank], std::to_string(ids[rank]), "ranks are numbered in the old order");
  }
}
