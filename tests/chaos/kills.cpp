// Random deaths, again and again: ranks are killed, stopped or both at random moments, from the moment the group stands, on
// every transport and with every way to update, and after each round the weights must be those of the replay.
//
//   chaos.kills [rounds [first seed]]
//
// Every round prints its seed; a round is repeated by its seed alone. Stopped ranks go on after the others have gone on
// without them, and must be fenced.
#include <csignal>
#include <cstdio>
#include <random>

#include "support/on_processes.hpp"
#include "support/survivor.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

struct Round {
  Survival plan;
  Hosts hosts = Hosts::kShared;
  struct Blow {
    int rank;
    int signal;
    int64_t after_ms;
  };
  std::vector<Blow> blows;
};

template <class Random>
int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

/// Stopped ranks stay fewer than half of those that live, so the others may go on.
Round make_round(uint64_t seed, const Folder& folder, bool gloo) {
  std::mt19937_64 random(seed);
  Round round;
  Survival& plan = round.plan;
  plan.ranks = static_cast<int32_t>(pick(random, 2, 8));
  round.hosts = gloo ? static_cast<Hosts>(pick(random, 0, 2)) : Hosts::kShared;
  plan.backend = options_on(round.hosts).backend;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.update = static_cast<Update>(pick(random, 0, 2));
  plan.own_values = pick(random, 0, 1) == 1;
  plan.pause_ms = pick(random, 0, 6);
  plan.steps = 40;
  if (ddp_recover_options_init(&plan.rule, sizeof plan.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
  plan.rule.wait_ms = 20'000;
  std::vector<int> ranks(static_cast<size_t>(plan.ranks));
  for (int i = 0; i < plan.ranks; ++i) ranks[static_cast<size_t>(i)] = i;
  std::shuffle(ranks.begin(), ranks.end(), random);
  const int64_t count = pick(random, 1, plan.ranks - 1);
  int64_t living = plan.ranks, stopped = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool stops = pick(random, 0, 4) == 0 && 2 * (stopped + 1) < living;
    if (!stops && 2 * stopped >= living - 1) break;
    (stops ? stopped : living) += stops ? 1 : -1;
    round.blows.push_back({ranks[static_cast<size_t>(i)], stops ? SIGSTOP : SIGKILL, pick(random, 0, i == 0 ? 400 : 250)});
  }
  return round;
}

std::string describe(const Round& round) {
  static const char* const kHosts[] = {"shared memory", "sockets", "two hosts"};
  static const char* const kUpdates[] = {"own optimizer", "at the step", "in backward", "sharded"};
  std::string text = std::to_string(round.plan.ranks) + " ranks, " + kHosts[static_cast<int>(round.hosts)] + ", " +
                     kUpdates[static_cast<int>(round.plan.update)] + (round.plan.own_values ? ", own values" : "") + ":";
  for (const Round::Blow& blow : round.blows)
    text += std::string(blow.signal == SIGKILL ? " kill " : " stop ") + std::to_string(blow.rank) + " after " +
            std::to_string(blow.after_ms) + " ms;";
  return text;
}

void check(const Round& round, const std::vector<ProcResult>& results) {
  std::vector<int> signal(results.size());
  for (const Round::Blow& blow : round.blows) signal[static_cast<size_t>(blow.rank)] = blow.signal;
  Story told;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const ProcResult& result = results[rank];
    const std::string who = "rank " + std::to_string(rank) + ": " + result.describe() + "\n" + result.said;
    if (signal[rank] == SIGKILL) continue;
    if (signal[rank] == SIGSTOP && result.exit_code == 1) {
      expect(result.text.find("FENCED") != std::string::npos || result.text.find("TOO_FEW_RANKS") != std::string::npos, who);
      continue;
    }
    expect(result.exit_code == 0, who);
    const Story story = read_story(result.text);
    if (told.members.empty()) told = story;
    expect(story.members == told.members && story.hash == told.hash, "the survivors tell the same: " + who);
  }
  expect(static_cast<int64_t>(told.members.size()) == round.plan.steps, "all steps were made");
  expect(told.hash == replay(told.members), "the weights are those of the replay: " + write_story(told));
}

void run(uint64_t seed, bool gloo) {
  const Folder folder;
  const Round round = make_round(seed, folder, gloo);
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), describe(round).c_str());
  std::fflush(stdout);
  Procs procs(round.plan.ranks, [&](int rank, Reporter& report) {
    if (round.hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    return write_story(Survivor(round.plan, rank, to(report)).run());
  });
  for (int rank = 0; rank < round.plan.ranks; ++rank) procs.wait_for(rank, "created");
  for (const Round::Blow& blow : round.blows) {
    sleep_ms(blow.after_ms);
    procs.signal(blow.rank, blow.signal);
  }
  for (int rank = 0; rank < round.plan.ranks; ++rank) {
    bool struck = false;
    for (const Round::Blow& blow : round.blows) struck = struck || blow.rank == rank;
    if (!struck) (void)procs.wait_one(rank, 90'000);
  }
  for (const Round::Blow& blow : round.blows)
    if (blow.signal == SIGSTOP) procs.signal(blow.rank, SIGCONT);
  check(round, procs.wait(60'000));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rounds = argc > 1 ? std::atoll(argv[1]) : 100;
  const auto first = static_cast<uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1);
  const bool gloo = gloo_is_there();
  int64_t failed = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    try {
      run(seed, gloo);
    } catch (const std::exception& error) {
      std::printf("seed %llu failed: %s\n", static_cast<unsigned long long>(seed), error.what());
      ++failed;
    }
  }
  std::printf("%lld rounds, %lld failed\n", static_cast<long long>(rounds), static_cast<long long>(failed));
  return failed == 0 ? 0 : 1;
}
