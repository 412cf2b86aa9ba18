// SPDX-License-Identifier: Apache-2.0
// Ranks with small programs of messages and collectives, run in random orders, with every mixture of old and new reports: a
// rank that a verdict names never gets out of its wait, and when nothing can happen any more there is a verdict.

#include "control/deadlock.hpp"
#include "support/check.hpp"

using Exchange = bootstrap::BlockedCall::Exchange;
using Reports = std::vector<std::optional<bootstrap::BlockedCall>>;

struct Op {
  enum class Kind { kSmall, kLarge, kReceive, kPost, kCollective };
  Kind kind = Kind::kCollective;
  int32_t peer = 0;  // kAnyRank: of a receive
  int tag = 0;
};

/// As exchange/messages/README.md has them.
struct Frame {
  enum class Kind { kMessage, kOffer, kTake, kData };
  Kind kind = Kind::kMessage;
  int id = 0;
  int tag = 0;
};

struct Receive {
  int32_t source = 0;
  int tag = 0;
  bool is_waited_for = false;
};

struct Rank {
  std::vector<Op> program;
  size_t at = 0;
  bool waits = false;
  uint64_t waited = 0;  // times
  uint64_t joined = 0;
  std::deque<Receive> posted;                              // that have found no message
  std::map<int, Receive> taken;                            // by id
  std::deque<std::pair<int32_t, Frame>> kept;              // messages without a receive
  std::map<int32_t, std::pair<uint64_t, uint64_t>> bytes;  // by peer: written, read
};

struct World {
  std::vector<Rank> ranks;
  std::map<std::pair<int32_t, int32_t>, std::deque<Frame>> streams;
  int last_id = 0;

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(ranks.size()); }
  [[nodiscard]] Rank& of(int32_t rank) { return ranks[static_cast<size_t>(rank)]; }
  [[nodiscard]] const Rank& of(int32_t rank) const { return ranks[static_cast<size_t>(rank)]; }
  [[nodiscard]] const Op& op(int32_t rank) const { return of(rank).program[of(rank).at]; }
  [[nodiscard]] bool is_over(int32_t rank) const { return of(rank).at == of(rank).program.size(); }
  [[nodiscard]] bool reads(int32_t rank) const {
    const Rank& me = of(rank);
    return (me.waits && op(rank).kind != Op::Kind::kCollective) || !me.posted.empty() || !me.taken.empty();
  }

  void write(int32_t from, int32_t to, Frame frame) {
    streams[{from, to}].push_back(frame);
    ++of(from).bytes[to].first;
  }
  void end_wait(int32_t rank) { of(rank).waits = false, ++of(rank).at; }
  void got(int32_t rank, const Receive& receive) {
    if (receive.is_waited_for) end_wait(rank);
  }
  void found(int32_t rank, int32_t from, const Frame& frame, const Receive& receive) {
    if (frame.kind == Frame::Kind::kMessage) return got(rank, receive);
    of(rank).taken[frame.id] = receive;
    write(rank, from, {Frame::Kind::kTake, frame.id, frame.tag});
  }
  [[nodiscard]] static bool fits(const Receive& receive, int32_t from, const Frame& frame) {
    return receive.tag == frame.tag && (receive.source == from || receive.source == bootstrap::kAnyRank);
  }

  void begin(int32_t rank) {
    Rank& me = of(rank);
    const Op next = op(rank);
    const bool blocks = next.kind != Op::Kind::kSmall && next.kind != Op::Kind::kPost;
    me.waits = blocks;
    me.waited += blocks ? 1 : 0;
    switch (next.kind) {
      case Op::Kind::kSmall: write(rank, next.peer, {Frame::Kind::kMessage, 0, next.tag}); break;
      case Op::Kind::kLarge: write(rank, next.peer, {Frame::Kind::kOffer, ++last_id, next.tag}); break;
      case Op::Kind::kCollective: ++me.joined; break;
      default: {
        const Receive receive{next.peer, next.tag, blocks};
        const auto kept = std::find_if(me.kept.begin(), me.kept.end(),
                                       [&](const auto& each) { return fits(receive, each.first, each.second); });
        if (kept == me.kept.end()) {
          me.posted.push_back(receive);
          break;
        }
        const auto [from, frame] = *kept;
        me.kept.erase(kept);
        found(rank, from, frame, receive);
      }
    }
    if (!blocks) ++me.at;
  }
  void read(int32_t rank, int32_t from) {
    Rank& me = of(rank);
    const Frame frame = streams[{from, rank}].front();
    streams[{from, rank}].pop_front();
    ++me.bytes[from].second;
    if (frame.kind == Frame::Kind::kTake) {
      write(rank, from, {Frame::Kind::kData, frame.id, frame.tag});
      return end_wait(rank);
    }
    if (frame.kind == Frame::Kind::kData) {
      const Receive receive = me.taken.at(frame.id);
      me.taken.erase(frame.id);
      return got(rank, receive);
    }
    const auto posted =
        std::find_if(me.posted.begin(), me.posted.end(), [&](const Receive& each) { return fits(each, from, frame); });
    if (posted == me.posted.end()) return me.kept.emplace_back(from, frame), void();
    const Receive receive = *posted;
    me.posted.erase(posted);
    found(rank, from, frame, receive);
  }

  /// Each is a thing that can happen now; false: nothing can.
  bool step(std::mt19937& random) {
    std::vector<std::pair<int32_t, int32_t>>
        can;  // rank; the one that it reads from, itself: it begins, or ends a collective
    for (int32_t rank = 0; rank < size(); ++rank) {
      const bool all =
          std::all_of(ranks.begin(), ranks.end(), [&](const Rank& each) { return each.joined >= of(rank).joined; });
      if (!is_over(rank) && (!of(rank).waits || (op(rank).kind == Op::Kind::kCollective && all)))
        can.emplace_back(rank, rank);
      for (int32_t from = 0; from < size(); ++from)
        if (from != rank && reads(rank) && !streams[{from, rank}].empty()) can.emplace_back(rank, from);
    }
    if (can.empty()) return false;
    const auto [rank, from] = can[random() % can.size()];
    if (from != rank)
      read(rank, from);
    else
      of(rank).waits ? end_wait(rank) : begin(rank);
    return true;
  }

  [[nodiscard]] std::optional<bootstrap::BlockedCall> report(int32_t rank) const {
    const Rank& me = of(rank);
    if (!me.waits) return std::nullopt;
    bootstrap::BlockedCall blocked;
    const bool joins = op(rank).kind == Op::Kind::kCollective;
    blocked.call = joins ? bootstrap::UserCall::kBarrier : bootstrap::UserCall::kReceive;
    blocked.exchange = joins ? Exchange::kCollective : Exchange::kMessage;
    blocked.number = joins ? me.joined : me.waited;
    blocked.collectives[0] = me.joined;
    blocked.settled = true;
    blocked.messages.reads = reads(rank);
    if (!joins) blocked.messages.awaited = {true, op(rank).peer, op(rank).kind == Op::Kind::kLarge, op(rank).tag};
    for (const auto& [peer, count] : me.bytes) blocked.messages.streams.push_back({peer, count.first, count.second, false});
    return blocked;
  }
};

World random_world(std::mt19937& random) {
  World world;
  const auto size = static_cast<int32_t>(2 + random() % 3);
  world.ranks.resize(static_cast<size_t>(size));
  for (int32_t rank = 0; rank < size; ++rank) {
    const size_t length = 1 + random() % 5;
    for (size_t at = 0; at < length; ++at) {
      Op op;
      op.kind = static_cast<Op::Kind>(random() % 5);
      op.peer = static_cast<int32_t>((static_cast<size_t>(rank) + 1 + random() % static_cast<size_t>(size - 1)) %
                                     static_cast<size_t>(size));
      op.tag = static_cast<int>(random() % 2);
      if (op.kind == Op::Kind::kReceive && random() % 4 == 0) op.peer = bootstrap::kAnyRank;
      world.of(rank).program.push_back(op);
    }
  }
  return world;
}

ddp_case(a_rank_that_a_verdict_names_never_goes_on) {
  std::mt19937 random(11);
  size_t verdicts = 0, dead = 0;
  for (int round = 0; round < 30'000; ++round) {
    World world = random_world(random);
    Reports said(world.ranks.size());
    std::map<int32_t, uint64_t> named;  // the wait in which it was when it reported
    const size_t talk = 1 + random() % 6;
    for (bool moves = true; moves;) {
      for (size_t times = random() % talk; times > 0; --times) {
        const auto rank = static_cast<int32_t>(random() % said.size());
        said[static_cast<size_t>(rank)] = world.report(rank);
        const auto found = bootstrap::find_deadlock(said);
        if (!found) continue;
        ++verdicts;
        std::vector<int32_t> ranks = found->chain;
        ranks.push_back(found->waiting), ranks.push_back(found->absent);
        for (const int32_t each : ranks) {
          const auto& blocked = *said[static_cast<size_t>(each)];
          expect(world.of(each).waits, "it still waits");
          if (blocked.exchange == Exchange::kMessage) expect_equal(world.of(each).waited, blocked.number, "in that wait");
          named[each] = world.of(each).waited;
        }
      }
      moves = world.step(random);
      for (const auto& [rank, wait] : named)
        expect(world.of(rank).waits && world.of(rank).waited == wait,
               "a named rank goes on in round " + std::to_string(round));
    }
    bool none_is_over = true;
    for (int32_t rank = 0; rank < world.size(); ++rank) none_is_over = none_is_over && !world.is_over(rank);
    Reports last;
    for (int32_t rank = 0; rank < world.size(); ++rank) last.push_back(world.report(rank));
    if (!none_is_over) continue;
    ++dead;
    expect(bootstrap::find_deadlock(last).has_value(),
           "no verdict although nobody goes on, in round " + std::to_string(round));
  }
  expect(verdicts > 1000 && dead > 1000, "there were some: " + std::to_string(verdicts) + ", " + std::to_string(dead));
}

bootstrap::BlockedCall waits_for(int32_t peer, bootstrap::UserCall call = bootstrap::UserCall::kReceive) {
  bootstrap::BlockedCall blocked;
  blocked.call = call;
  blocked.exchange = Exchange::kMessage;
  blocked.number = 1;
  blocked.settled = true;
  blocked.messages.reads = true;
  blocked.messages.awaited = {true, peer, false, 3};
  return blocked;
}

bootstrap::BlockedCall in_barrier() {
  bootstrap::BlockedCall blocked;
  blocked.call = bootstrap::UserCall::kBarrier;
  blocked.number = 1;
  blocked.collectives[0] = 1;
  blocked.settled = true;
  return blocked;
}

ddp_case(two_that_wait_are_named_while_a_third_computes) {
  expect(bootstrap::find_deadlock({waits_for(1), waits_for(0), std::nullopt}).has_value(), "two that wait for each other");
  expect(!bootstrap::find_deadlock({waits_for(1), waits_for(2), std::nullopt}).has_value(), "one that waits for the third");
  expect(!bootstrap::find_deadlock({waits_for(bootstrap::kAnyRank), waits_for(0), std::nullopt}).has_value(),
         "the third may be meant");
  expect(!bootstrap::find_deadlock({in_barrier(), in_barrier(), std::nullopt}).has_value(), "a barrier");
}

ddp_case(what_is_under_way_is_waited_for) {
  Reports said{waits_for(1), waits_for(0)};
  said[1]->messages.streams = {{0, 32, 0, false}};
  expect(!bootstrap::find_deadlock(said).has_value(), "rank 0 has not read it");
  said[0]->messages.streams = {{1, 0, 32, false}};
  expect(bootstrap::find_deadlock(said).has_value(), "it has");
  said[0]->messages.streams = {{1, 64, 32, false}};
  expect(!bootstrap::find_deadlock(said).has_value(), "rank 1 has not read it");
  said[1] = in_barrier();
  said[1]->messages.streams = {{0, 32, 0, false}};
  expect(bootstrap::find_deadlock(said).has_value(), "in a barrier it never will");
  said[1]->messages.reads = true;
  expect(!bootstrap::find_deadlock(said).has_value(), "it has posted a receive");
  said[1] = waits_for(0);
  said[0]->messages.streams = {};
  said[1]->messages.streams = {{0, 0, 0, true}};
  expect(!bootstrap::find_deadlock(said).has_value(), "rank 1 has more to write");
  said[1] = waits_for(0);
  said[1]->settled = false;
  expect(!bootstrap::find_deadlock(said).has_value(), "another thread of rank 1 may send");
}

ddp_case(ranks_that_do_not_exist_are_no_reason) {
  for (const int32_t peer : {-7, 0, 2, 1000})
    expect(!bootstrap::find_deadlock({waits_for(peer), waits_for(0)}).has_value(), std::to_string(peer));
}

ddp_case(the_error_names_who_waits_for_whom) {
  std::vector<bootstrap::Member> members;
  for (int32_t rank = 0; rank < 4; ++rank) members.push_back({rank, "host", "boot", 100 + rank, "127.0.0.1"});
  bootstrap::DeadlockWatch watch(members);
  watch.report(1, waits_for(2));
  watch.report(2, waits_for(3, bootstrap::UserCall::kPostReceive));
  watch.report(0, waits_for(1));
  expect(!watch.verdict().has_value(), "rank 3 computes");
  watch.report(3, in_barrier());
  const auto verdict = watch.verdict();
  expect(verdict.has_value(), "a verdict");
  expect_equal(static_cast<int>(verdict->status()), static_cast<int>(DDP_ERROR_DIFFERENT_CALLS), "status");
  expect_equal(
      verdict->text(),
      std::string("ranks wait for each other: rank 0 (host host, pid 100) waits in ddp_group_receive for a message of "
                  "rank 1 with tag 3; rank 1 (host host, pid 101) waits in ddp_group_receive for a message of rank 2 "
                  "with tag 3; rank 2 (host host, pid 102) waits in ddp_group_post_receive for a message of rank 3 "
                  "with tag 3; rank 3 (host host, pid 103) waits in ddp_group_barrier for rank 0; nothing is under "
                  "way between them"),
      "text");
}
