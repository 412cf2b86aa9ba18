// SPDX-License-Identifier: Apache-2.0
// How long the control plane takes in large groups: real sockets and encryption, each rank a thread of this process.
// bench.control_time [ranks, 1024]
//
// All ranks share this machine's cores and loopback, so rank 0's time is measured together with the work of all the others,
// which have machines of their own in a real group. Milliseconds until the last rank is ready; medians of five gathers.
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/check.hpp"
#include "support/meeting.hpp"

namespace ddp::test {
namespace {

constexpr int kRounds = 5;
constexpr int64_t kPatienceMs = 300'000;

/// Each rank needs four descriptors, and rank 0 one more for each. Beyond the hard limit only where the system allows it.
void raise_limits(int ranks) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t wanted = static_cast<rlim_t>(ranks) * 6 + 100, most = files.rlim_max;
  files = {wanted, std::max(most, wanted)};
  if (::setrlimit(RLIMIT_NOFILE, &files) == 0) return;
  files = {most, most};
  ::setrlimit(RLIMIT_NOFILE, &files);
}

std::unique_ptr<bootstrap::Control> meet(const std::string& place, const ddp_group_options& options) {
  const auto variable = [](const char* name) { return std::string_view(name) == "DDP_TOKEN" ? "a token" : nullptr; };
  return bootstrap::meet(bootstrap::resolve_meeting(place.c_str(), options, variable), options);
}

int run(int ranks) {
  raise_limits(ranks);
  const std::string place = tcp_place(free_port());
  std::barrier together(ranks + 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ddp_group_options options = quick_options(rank, ranks);
      options.timeout_ms = options.rendezvous_timeout_ms = kPatienceMs;
      options.heartbeat_ms = 1'000;
      options.dead_after_ms = 60'000;
      together.arrive_and_wait();
      const auto control = meet(place, options);
      together.arrive_and_wait();
      for (int round = 0; round < 2 * kRounds; ++round) {
        const std::string own = std::string(36, 'a') + std::to_string(1'000 + rank), alike(16, 'h');
        const std::string& mine = round < kRounds ? own : alike;
        together.arrive_and_wait();
        const auto all = control->gather("bench", mine, os::Deadline::in_ms(kPatienceMs));
        if (all[static_cast<size_t>(rank)] != mine) std::fprintf(stderr, "control_time: a wrong gather\n"), std::exit(1);
        together.arrive_and_wait();
      }
      control->leave();
    });
  const auto timed = [&] {
    together.arrive_and_wait();
    const double from = seconds_now();
    together.arrive_and_wait();
    return (seconds_now() - from) * 1e3;
  };
  const auto median = [&] {
    std::vector<double> times(kRounds);
    for (double& time : times) time = timed();
    std::sort(times.begin(), times.end());
    return times[kRounds / 2];
  };
  const double create = timed();
  const double differ = median();
  const double alike = median();
  std::printf(
      "| ranks | create, ms | a gather of 40 bytes from each, ms | a gather in which all say the same, ms |\n"
      "| --- | --- | --- | --- |\n| %d | %.0f | %.1f | %.1f |\n",
      ranks, create, differ, alike);
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace ddp::test

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1'024;
  if (ranks < 1 || ranks > 1'024) return std::fprintf(stderr, "control_time: 1 to 1024 ranks\n"), 2;
  return ddp::test::run(ranks);
}
