// SPDX-License-Identifier: Apache-2.0
// Random faults, again and again, against trainings of 2 to 8 ranks on every transport and with every way to update: ranks
// are killed (also by themselves, in a given state), stopped for good or for a while, new ones join, networks are cut. After
// each recovery all ranks compare their weights; at the end the weights, and those of the last checkpoint, must be those of
// the replay of who took part in which step. Ranks that were stopped or cut off find themselves fenced.
//
//   chaos.kills [rounds [first seed [memory | sockets | hosts | network | joiners]]]
//
// joiners: on any of these, mostly ranks that join, half of which are killed, wrong (another model, other options, no port)
// or starved (of descriptors, files, memory), where nothing is kept.
//
// Prints a line with the seed and the plan before a round and a line of JSON after it; a round is repeated by its seed
// alone. Networks are cut where root may make network namespaces.

#include "chaos/round.hpp"

using namespace ddp::test;

namespace {

std::unique_ptr<Network> make_network() {
  try {
    return std::make_unique<Network>(2 * FaultPlan::kMostRanks);
  } catch (const std::exception& error) {
    std::printf("no cuts: %s\n", error.what());
    return nullptr;
  }
}

std::string in_quotes(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '"' ? '\'' : c == '\n' ? ' ' : c;
  return "\"" + safe + "\"";
}

void print_result(const FaultPlan& plan, const Round& round, const std::string& failure) {
  std::printf("{\"seed\": %llu, \"ranks\": %d, \"place\": \"%s\", \"steps\": %lld, \"seconds\": [",
              static_cast<unsigned long long>(plan.seed()), plan.training().ranks, name_of(plan.place()),
              static_cast<long long>(round.steps()));
  for (size_t i = 0; i < round.seconds().size(); ++i) std::printf("%s%.2f", i == 0 ? "" : ", ", round.seconds()[i]);
  std::printf("], \"failed\": %s}\n", failure.empty() ? "null" : in_quotes(failure).c_str());
  std::fflush(stdout);
}

/// Returns whether all held.
bool run(const FaultPlan& plan, const Network* network, Counts& counts) {
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(plan.seed()), plan.describe().c_str());
  std::fflush(stdout);
  Round round(plan, network, counts);
  std::string failure;
  try {
    round.run();
  } catch (const std::exception& error) {
    failure = error.what();
    std::printf("seed %llu failed: %s\n", static_cast<unsigned long long>(plan.seed()), failure.c_str());
  }
  print_result(plan, round, failure);
  return failure.empty();
}

void print_table(const Counts& counts, int64_t rounds, int64_t failed) {
  std::printf("%-12s", "");
  for (size_t moment = 0; moment < kMoments; ++moment) std::printf("%11s", name_of_moment(moment));
  std::printf("%11s\n", "in all");
  int64_t all = 0;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    std::printf("%-12s", name_of(static_cast<Kind>(kind)));
    int64_t sum = 0;
    for (const int64_t count : counts.at(kind)) std::printf("%11lld", static_cast<long long>(count)), sum += count;
    std::printf("%11lld\n", static_cast<long long>(sum));
    all += sum;
  }
  std::printf("%lld rounds, %lld faults, %lld failed\n", static_cast<long long>(rounds), static_cast<long long>(all),
              static_cast<long long>(failed));
  std::fflush(stdout);
}

std::optional<PlannedPlace> place_of(const std::string& word) {
  if (word == "memory") return PlannedPlace::kShared;
  if (word == "sockets") return PlannedPlace::kSockets;
  if (word == "hosts") return PlannedPlace::kTwoHosts;
  if (word == "network") return PlannedPlace::kNetwork;
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rounds = argc > 1 ? std::atoll(argv[1]) : 100;
  const auto first = static_cast<uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1);
  const std::optional<PlannedPlace> place = place_of(argc > 3 ? argv[3] : "");
  const bool gloo = gloo_is_there();
  const std::unique_ptr<Network> network = gloo ? make_network() : nullptr;
  if (place == PlannedPlace::kNetwork && network == nullptr) return 77;
  const Mix mix = argc > 3 && std::string(argv[3]) == "joiners" ? Mix::kJoiners : Mix::kAll;
  Counts counts{};
  int64_t failed = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    failed += run(FaultPlan(first + static_cast<uint64_t>(i), place, gloo, network != nullptr, mix), network.get(), counts)
                  ? 0
                  : 1;
    if (i % 50 == 49) print_table(counts, i + 1, failed);
  }
  print_table(counts, rounds, failed);
  return failed == 0 ? 0 : 1;
}
