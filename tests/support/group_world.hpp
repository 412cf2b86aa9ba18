// SPDX-License-Identifier: Apache-2.0
// Groups of threads, made through the rendezvous local://: each rank's body gets its group.
#pragma once

#include "group/group.hpp"
#include "support/check.hpp"
#include "support/ranks.hpp"

namespace ddp::test {

inline ddp_group_options world_options(int32_t rank = -1, int32_t size = -1) {
  return {.rank = rank,
          .world_size = size,
          .timeout_ms = 20'000,
          .heartbeat_ms = 100,
          .dead_after_ms = 10'000,
          .rendezvous_timeout_ms = 20'000};
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

/// The head of a case whose body is that of each rank, with `group` and `rank`, for some numbers of ranks; `run` is
/// run_groups or one like it: ddp_ranks_case(run_groups, sums_are_exact, 1, 3) { ... }
#define ddp_ranks_case(run, function, ...)                                                          \
  void function(ddp::group::Group&, int);                                                           \
  [[maybe_unused]] const bool function##_is_listed = ddp::test::list_case(__FILE__, #function, [] { \
    for (const int size : {__VA_ARGS__}) run(size, function);                                       \
  });                                                                                               \
  void function([[maybe_unused]] ddp::group::Group& group, [[maybe_unused]] int rank)
