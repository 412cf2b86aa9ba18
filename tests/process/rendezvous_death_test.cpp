// SPDX-License-Identifier: Apache-2.0
// A process that ends while the others are still coming: ranks with a connection to the meeting get its name at
// once and may try again; no rank waits for the end of the rendezvous.

#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/procs.hpp"

constexpr double kAtOnceS = 5;  // far below the rendezvous, and enough for a machine that is busy

ddp_group_options patient(int rank, int size) {
  ddp_group_options options = quick_options(rank, size);
  options.rendezvous_timeout_ms = 120'000;
  return options;
}

bool has_thread(pid_t process, const char* name) {
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::string comm;
    std::ifstream(task.path() / "comm") >> comm;
    if (comm == name) return true;
  }
  return false;
}

// Until rank 0 has admitted this one, and a moment for its message then.
void wait_until_it_waits(const Procs& procs, int rank) {
  for (int i = 0; i < 2'000 && !has_thread(procs.pid(rank), "ddp-control"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  expect(has_thread(procs.pid(rank), "ddp-control"), "rank " + std::to_string(rank) + " waits in the meeting");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

// Three of four ranks meet, and one of them is killed. Then the others try again, as a group of two.
void the_others_name(int victim, const char* wanted) {
  const int port = free_port(), next = free_port();
  Procs procs(3, [&](int rank, Reporter& report) {
    const std::string text =
        expect_error(DDP_ERROR_PEER_FAILED, [&] { static_cast<void>(meet_at(tcp_place(port), patient(rank, 4))); });
    report.say(text);
    const auto control = meet_at(tcp_place(next), patient(rank > victim ? rank - 1 : rank, 2));
    control->leave();
    return text;
  });
  for (int rank = 0; rank < 3; ++rank) wait_until_it_waits(procs, rank);
  procs.signal(victim, SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank)
    if (rank != victim) procs.wait_for(rank, wanted, 30'000);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("rank %d killed: the others knew after %.2f s\n", victim, took.count());
  expect(took.count() < kAtOnceS, "at once, and not at the end of the rendezvous");
  const auto results = procs.wait();
  for (int rank = 0; rank < 3; ++rank)
    if (rank != victim)
      expect(results[static_cast<size_t>(rank)].exit_code == 0, results[static_cast<size_t>(rank)].describe());
}

ddp_case(a_killed_rank_is_named_by_those_who_wait) { the_others_name(1, "rank 1 (host"); }
ddp_case(a_killed_rank_0_is_named_by_those_who_wait) { the_others_name(0, "rank 0 at 127.0.0.1"); }
