// SPDX-License-Identifier: Apache-2.0
// An invented run, for the tests of its report.
#pragma once

#include <cmath>
#include <string>

#include "ddprun/run.hpp"
#include "trace/live.hpp"

namespace ddp::test {

/// `ranks` ranks on two hosts, `seconds` long, a sample each second. Rank 2 is waited for; it dies after a third of the
/// time, and comes back. `exit_code`: of the job.
inline ddprun::Run made_up_run(int32_t ranks, int32_t seconds, int exit_code) {
  ddprun::Run run;
  run.command = {"/opt/models/train", "--epochs", "10", "--name=<b>\"it's\" & more</b>", "\xff"};
  run.version = "9.9";
  run.started_unix_s = 1'750'000'000;
  run.seconds = seconds;
  run.exit_code = exit_code;
  run.world_size = ranks;
  run.restarts = 1;
  run.least_ranks = ranks;
  run.least_by = "--min-ranks";
  run.machine = {"my-machine", 8};
  const int64_t step_ns = 20'000'000;
  for (int32_t i = 0; i < ranks; ++i) {
    ddprun::RankRun rank;
    rank.rank = i;
    rank.host = i < ranks / 2 ? "node-a" : "node-b";
    rank.cores = i < ranks / 2 ? 16 : 0;
    rank.transports = trace::kSharedMemory | trace::kGloo;
    rank.starts = i == 2 ? 2 : 1;
    rank.end = exit_code == 0 || i != 2 ? "exit code 0" : "killed by signal 9 (Killed, SIGKILL)";
    rank.failed = exit_code != 0 && i == 2;
    rank.ended_s = seconds;
    rank.waited_ns = i == 2 ? 100'000'000 : int64_t{seconds} * 70'000'000;
    rank.awaited_ns = i == 2 ? int64_t{seconds} * 70'000'000 * (ranks - 1) : 30'000'000;
    rank.buckets = {104'857'600, 5, 26'214'400, 1'048'576};
    run.ranks.push_back(rank);
  }
  ddprun::Sample now;
  for (int32_t second = 0; second <= seconds; ++second) {
    const bool down = 3 * second > seconds && 3 * second < seconds + 12;
    const auto steps = down || second == 0 ? 0 : static_cast<int64_t>(48 + 3 * std::sin(second * 0.7));
    now.seconds = second;
    now.steps += steps;
    now.passes += steps;
    now.running = down ? ranks - 1 : ranks;
    now.resident_kib.clear();
    for (auto& rank : run.ranks) {
      const ddprun::Counts since{steps,
                                 steps,
                                 steps * 14'000'000,
                                 steps * 6'000'000,
                                 steps * (700'000 + (second % 7) * 90'000),
                                 steps * 157'286'400,
                                 steps * step_ns / 10};
      rank.counts += since;
      now.all += since;
      const bool runs = !(down && rank.rank == 2);
      now.resident_kib.push_back(runs ? 1'200'000 + 40'000 * rank.rank + 9'000 * std::min(second, 30) : 0);
      rank.peak_kib = std::max(rank.peak_kib, now.resident_kib.back());
    }
    run.samples.push_back(now);
  }
  run.events = {{seconds / 3.0, "rank 2 (host node-b) failed (killed by signal 9 (Killed, SIGKILL))"},
                {seconds / 3.0 + 1, "starting rank 2 (host node-b) again, to join ranks 0, 1, 3 (restart 1 of 3)"}};
  run.last_words = {"restarts: 1", "  | a <line> & \"what\" it said"};
  return run;
}

}  // namespace ddp::test
