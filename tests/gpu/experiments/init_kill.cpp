// SPDX-License-Identifier: Apache-2.0
// A rank is killed while NCCL connects the ranks: the others must see it within a second, with the name of the dead rank.
// NCCL alone would wait until its own limit. Ranks are processes, and the fake GPU knows only threads: there the
// tensors are in host memory, which shows that this part works.

#include "gpu/experiments/experiments.hpp"
#include "gpu/support/world.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

constexpr double kLimitMs = 1000;

/// Sums until something fails; the last rank never comes if it is `late`. The text: when it failed, and how.
std::string connect_and_sum(const Folder& folder, int rank, int size, bool late, Reporter& say) {
  const Place place = is_fake() ? kCpu : settle_in_process(rank, size);
  const GroupHandle group = join_world(folder, rank, size, place);
  const Stream stream(place);
  const Memory memory(place, 4);
  say.say("connects");
  if (late && rank == size - 1)
    for (;;) pause();
  const ddp_tensor tensor = flat(memory.data(), DDP_F32, 1, place);
  ddp_status status = ddp_group_all_reduce(group.get(), &tensor, DDP_SUM, stream.get());
  if (status == DDP_OK) say.say("connected");
  while (status == DDP_OK) {
    stream.wait();
    status = ddp_group_all_reduce(group.get(), &tensor, DDP_SUM, stream.get());
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.3f %s ", now_ms(), ddp_status_name(status));
  return std::string(text) + ddp_last_error();
}

struct Outcome {
  double slowest_ms = 0;
  bool named = true;       // every survivor got PEER_FAILED with the rank's name
  bool connected = false;  // the rank had connected when it was killed
  std::string text;
};

Outcome kill_last(int size, int delay_ms, bool late) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter& say) { return connect_and_sum(folder, rank, size, late, say); });
  const int victim = size - 1;
  for (int rank = 0; rank < size; ++rank) procs.wait_for(rank, "connects", 60'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  const double killed = now_ms();
  procs.signal(victim, SIGKILL);
  Outcome outcome;
  for (int rank = 0; rank < victim; ++rank) {
    const ProcResult& result = procs.wait_one(rank, 60'000);
    double when = 0;
    char status[64] = "";
    if (result.exit_code != 0 || std::sscanf(result.text.c_str(), "%lf %63s", &when, status) != 2)
      throw std::runtime_error("rank " + std::to_string(rank) + ": " + result.describe());
    outcome.slowest_ms = std::max(outcome.slowest_ms, when - killed);
    outcome.named = outcome.named && std::string(status) == "DDP_ERROR_PEER_FAILED" &&
                    result.text.find("rank " + std::to_string(victim)) != std::string::npos;
    outcome.connected = outcome.connected || result.said.find("connected") != std::string::npos;
    if (outcome.text.empty() || !outcome.named) outcome.text = result.text.substr(result.text.find(' ') + 1);
  }
  return outcome;
}

void try_once(Report& report, int size, int delay_ms, bool late) {
  const Outcome outcome = kill_last(size, delay_ms, late);
  const std::string what = std::to_string(size) + " ranks, the last " +
                           (late ? "does not come, killed after " : "killed after ") + std::to_string(delay_ms) + " ms";
  report.figure(what, outcome.slowest_ms, "ms", outcome.connected ? "it had connected" : "it had not connected");
  report.verdict("... seen within 1 s, and named", outcome.slowest_ms <= kLimitMs && outcome.named, outcome.text);
}

}  // namespace

void kill_while_connecting(Report& report, const Options& options) {
  need_world();
  try_once(report, 2, 500, true);
  for (const int delay_ms : {0, 20, 60, 150, 300, 600})
    if (!options.quick || delay_ms == 20 || delay_ms == 150) try_once(report, 2, delay_ms, false);
  if (!options.quick) try_once(report, 3, 60, false);
}

}  // namespace ddp::experiments
