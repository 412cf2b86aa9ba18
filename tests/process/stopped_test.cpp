// SPDX-License-Identifier: Apache-2.0
// Processes that are stopped for a while (SIGSTOP, as a debugger or a paused machine does) and continue: no stopped rank
// blames others for that time, and ranks that were all stopped continue as before.

#include "control/control.hpp"
#include "support/check.hpp"
#include "support/on_processes.hpp"

constexpr int kRanks = 3;
constexpr int64_t kDeadMs = 2'000, kTimeoutMs = 2'500;

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

ddp_group_options clocks(Hosts hosts) {
  ddp_group_options options = options_on(hosts);
  options.heartbeat_ms = 100;
  options.dead_after_ms = kDeadMs;
  // Gloo closes its connections when a wait of its own has lasted too long, by the system's clock.
  if (hosts == Hosts::kShared) options.timeout_ms = kTimeoutMs;
  return options;
}

/// All ranks but the last wait in a barrier, and in a gather after it, when those of `stopped` are stopped for `ms`.
void stop_and_go_on(Hosts hosts, const std::vector<int>& stopped, int64_t ms) {
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter& report) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    const auto group = join_process_group(folder, rank, kRanks, clocks(hosts));
    for (int i = 0; i < 3; ++i) {
      group->barrier();
      if (rank == kRanks - 1) report.say("late for " + std::to_string(i));
      if (rank == kRanks - 1) sleep_ms(400);
      if (i != 1)
        group->barrier();
      else
        (void)group->gather("words", "");
    }
    return std::string("done");
  });
  for (const int round : {0, 1}) {  // a collective of the transport, an exchange of the control plane
    procs.wait_for(kRanks - 1, "late for " + std::to_string(round));
    sleep_ms(100);
    for (const int rank : stopped) procs.signal(rank, SIGSTOP);
    sleep_ms(ms);
    for (const int rank : stopped) {  // the first rank that wakes finds the others still stopped
      procs.signal(rank, SIGCONT);
      sleep_ms(100);
    }
  }
  int rank = 0;
  for (const ProcResult& result : procs.wait(40'000)) {
    expect(result.exit_code == 0 && result.text == "done", "rank " + std::to_string(rank) + ": " + result.describe());
    ++rank;
  }
}

ddp_case_on_hosts(all_ranks_stopped_for_longer_than_every_limit_go_on, Hosts::kShared, Hosts::kGloo, Hosts::kSeveral) {
  if (hosts == Hosts::kShared || gloo_is_there()) stop_and_go_on(hosts, {0, 1, 2}, kTimeoutMs + 1'000);
}

ddp_case_on_hosts(one_rank_stopped_for_less_than_the_limit_blames_nobody, Hosts::kShared, Hosts::kGloo) {
  stop_and_go_on(hosts, {0}, kDeadMs / 2);
  stop_and_go_on(hosts, {1}, kDeadMs / 2);
}
