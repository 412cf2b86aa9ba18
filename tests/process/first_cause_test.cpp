// SPDX-License-Identifier: Apache-2.0
// One rank ends without a goodbye, and every survivor ends as soon as it gets the report. All of them must name the rank
// that ended first, never one that got the report and left. DDP_TEST_RUNS=1000 repeats each kind 1,000 times; the last line
// of each kind is its figure.

#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/on_processes.hpp"

constexpr int kRanks = 8;

int runs() {
  const char* wanted = std::getenv("DDP_TEST_RUNS");
  return wanted != nullptr ? std::atoi(wanted) : 12;
}

enum class End { kExit, kDestroy };

/// The error that a rank gets when the others end; "" from the one that ends first.
std::string hear(group::Group& group, int rank, int victim, int rounds) {
  try {
    for (int round = 0; rank != victim || round < rounds; ++round) group.barrier();
    _exit(0);
  } catch (const Error& error) {
    return error.text();
  }
}

void all_name_the_first(Hosts hosts, End end) {
  int wrong = 0, heard = 0;
  std::string example;
  for (int run = 0; run < runs(); ++run) {
    const int victim = 1 + run % (kRanks - 1);
    const Folder folder;
    Procs procs(kRanks, [&](int rank, Reporter& report) -> std::string {
      auto group = join_process_group(folder, rank, kRanks, options_on(hosts));
      report.say(hear(*group, rank, victim, 1 + run % 5));
      if (end == End::kExit) _exit(0);
      group.reset();
      if (run == 0 && rank != victim) and_goes_on(folder, rank - (rank > victim ? 1 : 0), kRanks - 1, options_on(hosts));
      return "";
    });
    const std::vector<ProcResult> results = procs.wait(60'000);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      ++heard;
      const ProcResult& result = results[static_cast<size_t>(rank)];
      expect(run != 0 || end == End::kExit || result.exit_code == 0, "it goes on: " + result.describe());
      if (result.said.rfind("rank " + std::to_string(victim) + " (", 0) == 0 && !result.timed_out) continue;
      ++wrong;
      example = "rank " + std::to_string(rank) + " of a run in which rank " + std::to_string(victim) +
                " ended: " + result.describe();
    }
  }
  std::printf("%d runs, %d messages, %d of them wrong\n", runs(), heard, wrong);
  expect(wrong == 0, example);
}

ddp_case(over_shared_memory_by_exit) { all_name_the_first(Hosts::kShared, End::kExit); }
ddp_case(over_shared_memory_in_good_order) { all_name_the_first(Hosts::kShared, End::kDestroy); }
ddp_case(over_gloo_by_exit) {
  if (gloo_is_there()) all_name_the_first(Hosts::kGloo, End::kExit);
}
ddp_case(over_gloo_in_good_order) {
  if (gloo_is_there()) all_name_the_first(Hosts::kGloo, End::kDestroy);
}
