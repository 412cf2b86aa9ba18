// SPDX-License-Identifier: Apache-2.0
// A thousand SIGALRM a second on the thread that calls, whose handler does not ask for calls to be restarted: groups form,
// ranks wait for each other, train, save and load as without, the handler runs, and a death is named and survived.
#include <sys/time.h>

#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/on_processes.hpp"
#include "support/state_world.hpp"

constexpr int kRanks = 3, kVictim = 1;
std::atomic<int64_t> handled{0};

void begin_storm() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++handled; };  // and no SA_RESTART
  expect(sigaction(SIGALRM, &action, nullptr) == 0, "handler");
  const itimerval each_ms{{0, 1'000}, {0, 1'000}};
  expect(setitimer(ITIMER_REAL, &each_ms, nullptr) == 0, "timer");
}

void end_storm() {
  const itimerval never{};
  expect(setitimer(ITIMER_REAL, &never, nullptr) == 0, "timer");
}

/// Sleeping ends with each signal.
void compute_ms(int64_t ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (std::chrono::steady_clock::now() < end) usleep(500);
}

void calls_go_on(Hosts hosts) {
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter& report) {
    begin_storm();
    auto group = join_process_group(folder, rank, kRanks, options_on(hosts));
    {
      StateWorld world(*group);
      world.fill(3);
      for (int i = 0; i < 5; ++i) {
        world.save(folder.path() + "/saved");
        (void)world.load(folder.path() + "/saved");
      }
    }
    for (int i = 0; i < 30; ++i) {
      if (i % 10 == rank) compute_ms(50);
      group->barrier();
    }
    expect(handled > 20, "the program's handler ran " + std::to_string(handled) + " times");
    report.say("trained");
    while (rank == kVictim) pause();
    expect_error(DDP_ERROR_PEER_FAILED, [&] { group->barrier(); }, {"rank 1 ("});
    group.reset();
    and_goes_on(folder, rank == 0 ? 0 : 1, 2, options_on(hosts));
    end_storm();
  });
  for (int rank = 0; rank < kRanks; ++rank) procs.wait_for(rank, "trained", 60'000);
  procs.signal(kVictim, SIGKILL);
  expect_success_of(procs, {0, 2}, 60'000);
}

ddp_case(over_shared_memory) { calls_go_on(Hosts::kShared); }
ddp_case(over_gloo) {
  if (gloo_is_there()) calls_go_on(Hosts::kGloo);
}
ddp_case(on_two_hosts) {
  if (gloo_is_there()) calls_go_on(Hosts::kSeveral);
}
