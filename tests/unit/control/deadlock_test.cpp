// SPDX-License-Identifier: Apache-2.0
// Ranks with small programs of exchanges, run in every order, with every mixture of old and new reports: the verdict comes
// exactly when no rank can ever continue, and never before.
#include "control/deadlock.hpp"

#include "support/check.hpp"

using Exchange = bootstrap::BlockedCall::Exchange;
using Reports = std::vector<std::optional<bootstrap::BlockedCall>>;

/// What a rank does, one letter each: 'g' a gather, 'c' a collective, 'd' a collective of another channel.
using Program = std::string;

/// A rank has begun `at` exchanges, and is in the last of them as long as not all ranks have joined it.
struct World {
  std::vector<Program> programs;
  std::vector<size_t> at;

  explicit World(std::vector<Program> what) : programs(std::move(what)), at(programs.size(), 0) {}

  [[nodiscard]] uint64_t joined(size_t rank, char kind) const {
    return static_cast<uint64_t>(
        std::count(programs[rank].begin(), programs[rank].begin() + static_cast<std::ptrdiff_t>(at[rank]), kind));
  }
  /// Is the exchange that this rank has begun last complete, so that it computes?
  [[nodiscard]] bool is_free(size_t rank) const {
    if (at[rank] == 0) return true;
    const char kind = programs[rank][at[rank] - 1];
    for (size_t other = 0; other < programs.size(); ++other)
      if (joined(other, kind) < joined(rank, kind)) return false;
    return true;
  }
  [[nodiscard]] std::optional<bootstrap::BlockedCall> report(size_t rank, bool waits_although_it_is_complete) const {
    if (at[rank] == 0 || (is_free(rank) && !waits_although_it_is_complete)) return std::nullopt;
    const char kind = programs[rank][at[rank] - 1];
    bootstrap::BlockedCall blocked;
    blocked.call = programs[rank] == programs[0] ? bootstrap::UserCall::kBarrier : bootstrap::UserCall::kCommit;
    blocked.exchange = kind == 'g' ? Exchange::kGather : Exchange::kCollective;
    blocked.number = joined(rank, kind);
    blocked.channel = kind == 'd' ? 1 : 0;
    blocked.collectives[0] = joined(rank, 'c');
    blocked.collectives[1] = joined(rank, 'd');
    blocked.gathers = joined(rank, 'g');
    return blocked;
  }
  [[nodiscard]] bool can_step(size_t rank) const { return at[rank] < programs[rank].size() && is_free(rank); }
  /// All wait, and no rank will ever come.
  [[nodiscard]] bool is_dead() const {
    for (size_t rank = 0; rank < programs.size(); ++rank)
      if (is_free(rank)) return false;
    return true;
  }
};

/// From every state, every rank may step, or report its place, at any time; `said` is the latest report of each.
class Search {
 public:
  explicit Search(World start) { visit(start, Reports(start.programs.size())); }
  size_t states = 0, verdicts = 0;

 private:
  void visit(const World& world, const Reports& said) {
    if (!seen_.insert(key(world, said)).second) return;
    ++states;
    if (bootstrap::find_deadlock(said).has_value()) {
      ++verdicts;
      expect(never_ends(world), "a verdict although ranks could go on: " + text(world));
    }
    for (size_t rank = 0; rank < world.programs.size(); ++rank) {
      for (const bool late : {false, true}) {
        Reports next = said;
        next[rank] = world.report(rank, late);
        visit(world, next);
      }
      if (!world.can_step(rank)) continue;
      World next = world;
      ++next.at[rank];
      visit(next, said);
    }
    Reports newest;
    for (size_t rank = 0; rank < world.programs.size(); ++rank) newest.push_back(world.report(rank, true));
    if (world.is_dead())
      expect(bootstrap::find_deadlock(newest).has_value(), "no verdict although nobody can go on: " + text(world));
  }
  /// Some rank waits for what no order of steps can bring.
  static bool never_ends(const World& start) {
    World world = start;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < world.programs.size(); ++rank) {
        if (!world.can_step(rank)) continue;
        ++world.at[rank];
        moved = true;
      }
    }
    for (size_t rank = 0; rank < world.programs.size(); ++rank)
      if (!world.is_free(rank)) return true;
    return false;
  }
  static std::string text(const World& world) {
    std::string all;
    for (size_t rank = 0; rank < world.programs.size(); ++rank)
      all += world.programs[rank] + "@" + std::to_string(world.at[rank]) + " ";
    return all;
  }
  static std::string key(const World& world, const Reports& said) {
    std::string all = text(world);
    for (const auto& report : said)
      all += report ? std::to_string(static_cast<int>(report->exchange)) + "," + std::to_string(report->number) + "," +
                          std::to_string(report->channel) + "," + std::to_string(report->collectives[0]) + "," +
                          std::to_string(report->collectives[1]) + "," + std::to_string(report->gathers) + ";"
                    : "-;";
    return all;
  }
  std::set<std::string> seen_;
};

std::vector<Program> programs_of(size_t most, const std::string& kinds = "gc") {
  std::vector<Program> all = {""};
  for (size_t from = 0, length = 1; length <= most; ++length) {
    const size_t end = all.size();
    for (; from < end; ++from)
      for (const char kind : kinds) all.push_back(all[from] + kind);
  }
  return all;
}

ddp_case(two_ranks_with_any_programs) {
  size_t verdicts = 0;
  for (const Program& a : programs_of(4))
    for (const Program& b : programs_of(4)) {
      const Search search(World({a, b}));
      if (a == b) expect_equal(search.verdicts, size_t{0}, "verdicts on ranks that do the same, " + a);
      verdicts += search.verdicts;
    }
  expect(verdicts > 100, "there were verdicts");
}

ddp_case(two_ranks_with_two_channels) {
  size_t verdicts = 0;
  for (const Program& a : programs_of(3, "gcd"))
    for (const Program& b : programs_of(3, "gcd")) {
      const Search search(World({a, b}));
      if (a == b) expect_equal(search.verdicts, size_t{0}, "verdicts on ranks that do the same, " + a);
      verdicts += search.verdicts;
    }
  expect(verdicts > 100, "there were verdicts");
}

ddp_case(three_ranks_with_any_programs) {
  size_t verdicts = 0;
  for (const Program& a : programs_of(2))
    for (const Program& b : programs_of(2))
      for (const Program& c : programs_of(2)) verdicts += Search(World({a, b, c})).verdicts;
  expect(verdicts > 100, "there were verdicts");
  expect_equal(Search(World({"gcg", "gcg", "gcg"})).verdicts, size_t{0}, "verdicts on ranks that do the same");
}

ddp_case(many_ranks_that_do_the_same_are_never_blamed) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    World world(std::vector<Program>(2 + random() % 6, "gcdgcdggccd"));
    Reports said(world.programs.size());
    for (int step = 0; step < 400; ++step) {
      const size_t rank = random() % world.programs.size();
      if (random() % 2 == 0)
        said[rank] = world.report(rank, random() % 2 == 0);
      else if (world.can_step(rank))
        ++world.at[rank];
      expect(!bootstrap::find_deadlock(said).has_value(), "a verdict in round " + std::to_string(round));
    }
  }
}

bootstrap::BlockedCall blocked_in(bootstrap::UserCall call, Exchange exchange, uint64_t number, uint64_t collectives,
                                  uint64_t gathers) {
  return bootstrap::BlockedCall{call, exchange, number, {collectives}, gathers, 0};
}

std::vector<bootstrap::Member> people(int32_t size) {
  std::vector<bootstrap::Member> members;
  for (int32_t rank = 0; rank < size; ++rank) members.push_back({rank, "host", "boot", 100 + rank, "127.0.0.1"});
  return members;
}

ddp_case(the_error_names_the_channel_of_a_model) {
  const auto members = people(2);
  bootstrap::DeadlockWatch watch(members);
  bootstrap::BlockedCall first = blocked_in(bootstrap::UserCall::kEndBackward, Exchange::kCollective, 8, 8, 3);
  bootstrap::BlockedCall second = first;
  second.channel = 1;
  watch.report(0, first);
  watch.report(1, second);
  expect_contains(watch.verdict()->text(), "ddp_model_end_backward (collective 8 of channel 1)");
}

ddp_case(the_error_names_two_ranks_and_their_calls) {
  const auto members = people(3);
  bootstrap::DeadlockWatch watch(members);
  watch.report(0, blocked_in(bootstrap::UserCall::kBarrier, Exchange::kCollective, 5, 5, 3));
  watch.report(1, blocked_in(bootstrap::UserCall::kBarrier, Exchange::kCollective, 5, 5, 3));
  expect(!watch.verdict().has_value(), "rank 2 computes");
  watch.report(2, blocked_in(bootstrap::UserCall::kSaveFile, Exchange::kGather, 4, 4, 4));
  const auto verdict = watch.verdict();
  expect(verdict.has_value(), "a verdict");
  expect_equal(static_cast<int>(verdict->status()), static_cast<int>(DDP_ERROR_DIFFERENT_CALLS), "status");
  expect_equal(verdict->text(),
               std::string("ranks made different calls: rank 0 (host host, pid 100) waits in ddp_group_barrier; rank 2 "
                           "(host host, pid 102) waits in "
                           "ddp_state_save_file; every rank must make the same collective calls in the same order"),
               "text");
  watch.report(1, std::nullopt);
  expect(!watch.verdict().has_value(), "rank 1 waits no longer");
}

ddp_case(one_call_with_two_meanings_is_named_with_its_places) {
  const auto members = people(2);
  bootstrap::DeadlockWatch watch(members);
  watch.report(0, blocked_in(bootstrap::UserCall::kCommit, Exchange::kCollective, 8, 8, 3));
  watch.report(1, blocked_in(bootstrap::UserCall::kCommit, Exchange::kGather, 4, 7, 4));
  expect_contains(watch.verdict()->text(), "ddp_model_commit (collective 8)");
  expect_contains(watch.verdict()->text(), "ddp_model_commit (exchange 4)");
}
