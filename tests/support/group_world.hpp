// SPDX-License-Identifier: Apache-2.0
// Groups of threads, made through the rendezvous local://: each rank's body gets its group.
#pragma once

#include "group/group.hpp"
#include "support/check.hpp"
#include "support/ranks.hpp"

namespace ddp::test {

inline ddp_group_options world_options(int32_t rank = -1, int32_t size = -1) {
  ddp_group_options options{};
  options.rank = rank;
  options.world_size = size;
  options.timeout_ms = 20'000;
  options.heartbeat_ms = 100;
  options.dead_after_ms = 10'000;
  options.rendezvous_timeout_ms = 20'000;
  return options;
}

inline void run_groups_with(int size, ddp_group_options options, const std::function<void(group::Group&, int)>& body) {
  static std::atomic<int> next{0};
  const std::string place = "local://world-" + std::to_string(next++);
  run_ranks(size, [&](int rank) {
    ddp_group_options mine = options;
    mine.rank = rank;
    mine.world_size = size;
    const auto group = group::Group::create(place.c_str(), mine);
    body(*group, rank);
  });
}

inline void run_groups(int size, const std::function<void(group::Group&, int)>& body) {
  run_groups_with(size, world_options(), body);
}

/// Wait for something that another rank does; at most 20 s.
inline void wait_until(const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    expect(std::chrono::steady_clock::now() < limit, "waited 20 s for another rank");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace ddp::test
