// SPDX-License-Identifier: Apache-2.0
// The wall clock jumps by a day, forth and back, all the time: ranks meet, train, wait for each other, name a rank that dies
// and continue as before. This program's own clock_gettime() and gettimeofday() give all of its libraries wrong times.
#include <sys/syscall.h>
#include <sys/time.h>

#include <ctime>

#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/on_processes.hpp"

namespace {
std::atomic<int64_t> wrong_by_s{0};
constexpr int64_t kDay = 86'400;
}  // namespace

extern "C" {
int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += wrong_by_s;
  return result;
}
int gettimeofday(timeval* time, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1'000;
  return 0;
}
time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
}

using namespace ddp::test;

namespace {

constexpr int kRanks = 3, kVictim = 1;

/// While it lives.
class Jumps {
 public:
  ~Jumps() {
    stop_ = true;
    thread_.join();
    wrong_by_s = 0;
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] {
    for (int64_t i = 0; !stop_; ++i) {
      wrong_by_s = (i % 3 - 1) * kDay;
      std::this_thread::sleep_for(std::chrono::milliseconds(7));
    }
  }};
};

void nothing_is_late_or_dead(Hosts hosts) {
  const Folder folder;
  ddp_group_options options = options_on(hosts);
  options.dead_after_ms = 5'000;
  options.timeout_ms = 5'000;
  options.rendezvous_timeout_ms = 10'000;
  Procs procs(kRanks, [&](int rank, Reporter& report) {
    const Jumps jumps;
    auto group = join_process_group(folder, rank, kRanks, options);
    for (int i = 0; i < 100; ++i) {
      if (i % 25 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      group->barrier();
    }
    report.say("trained");
    if (rank == kVictim) pause();
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] { group->barrier(); });
    const auto heard = std::chrono::steady_clock::now();
    expect_contains(text, "rank 1 (");
    group.reset();
    expect(std::chrono::steady_clock::now() - heard < std::chrono::seconds(2), "the group ends soon");
    and_goes_on(folder, rank == 0 ? 0 : 1, 2, options);
  });
  for (int rank = 0; rank < kRanks; ++rank) procs.wait_for(rank, "trained");
  procs.signal(kVictim, SIGKILL);
  expect_success_of(procs, {0, 2}, 60'000);
}

ddp_case(the_clock_of_the_program_lies) {
  wrong_by_s = kDay;
  const auto now = std::chrono::system_clock::now();
  wrong_by_s = 0;
  expect(now - std::chrono::system_clock::now() > std::chrono::hours(23), "libstdc++ has the wrong time too");
}
ddp_case(over_shared_memory) { nothing_is_late_or_dead(Hosts::kShared); }
ddp_case(over_gloo) {
  if (gloo_is_there()) nothing_is_late_or_dead(Hosts::kGloo);
}

}  // namespace
