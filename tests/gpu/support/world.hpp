// SPDX-License-Identifier: Apache-2.0
// Several ranks with GPUs. On real ones every rank is a process with a GPU of its own, or, where there are fewer, several
// processes share one: NCCL then believes that each is a host of its own (NCCL_HOSTID), and they talk over the loopback
// interface. That is for correctness: the processes take turns on the GPU, so a collective takes milliseconds. On the GPU
// that is fake every rank is a thread.
#pragma once

#include "gpu/support/calls.hpp"
#include "gpu/support/place.hpp"
#include "support/group_procs.hpp"

namespace ddp::test::card {

/// Milliseconds that a collective may take, for limits of tests.
inline int64_t collective_ms(int size) { return size <= 3 ? 20 : 40; }

/// In the environment before NCCL's first call. A value of the user stays.
inline void pretend_to_be_a_host(int rank) {
  setenv("NCCL_HOSTID", ("libddp-test-" + std::to_string(rank)).c_str(), 1);
  const char* const settings[][2] = {
      {"NCCL_SOCKET_IFNAME", "=lo"}, {"NCCL_SOCKET_FAMILY", "AF_INET"}, {"NCCL_NET", "Socket"},
      {"NCCL_NET_PLUGIN", "none"},   {"NCCL_TUNER_PLUGIN", "none"},     {"NCCL_PROFILER_PLUGIN", "none"},
      {"NCCL_IB_DISABLE", "1"},      {"NCCL_P2P_DISABLE", "1"},         {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_MNNVL_ENABLE", "0"},    {"NCCL_NVLS_ENABLE", "0"},         {"NCCL_COLLNET_ENABLE", "0"},
      {"NCCL_GIN_ENABLE", "0"},      {"NCCL_RAS_ENABLE", "0"},          {"NCCL_WIN_ENABLE", "0"},
      {"NCCL_ALGO", "Ring"},         {"NCCL_PROTO", "Simple"},          {"NCCL_MAX_CTAS", "2"},
      {"NCCL_DEBUG", "WARN"}};
  for (const auto& setting : settings) setenv(setting[0], setting[1], 0);
}

struct Rank {
  ddp_group* group;
  int rank;
  int size;
  Place place;
};
using Body = std::function<void(const Rank&)>;

inline ddp_group_options world_options_of(int rank, int size, Place place) {
  auto options = defaults<ddp_group_options>();
  options.rank = rank;
  options.world_size = size;
  options.device_index = place.device;
  options.timeout_ms = 30'000;
  options.heartbeat_ms = 200;
  options.dead_after_ms = 3'000;
  options.rendezvous_timeout_ms = 60'000;
  return options;
}

/// In a rank's own process: its GPU, and what NCCL has to believe.
inline Place settle_in_process(int rank, int size) {
  std::string why;
  const int32_t count = count_devices(why);
  if (count == 0) throw std::runtime_error(why);
  if (count < size) pretend_to_be_a_host(rank);
  return Place{rank % count};
}

inline GroupHandle join_world(const Folder& folder, int rank, int size, Place place) {
  const ddp_group_options options = world_options_of(rank, size, place);
  ddp_group* group = nullptr;
  OK(ddp_group_create(("file://" + folder.path() + "/meet").c_str(), &options, &group));
  return GroupHandle(group);
}

inline void run_processes(int size, const Body& body, int64_t limit_ms) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter&) {
    const Place place = settle_in_process(rank, size);
    const GroupHandle group = join_world(folder, rank, size, place);
    body({group.get(), rank, size, place});
  });
  expect_success(procs, limit_ms);
}

inline void run_threads(int size, const Body& body, int64_t limit_ms) {
  static std::atomic<int> next{0};
  const std::string place = "local://gpu-" + std::to_string(next++);
  run_ranks(
      size,
      [&](int rank) {
        const ddp_group_options options = world_options_of(rank, size, Place{rank});
        ddp_group* made = nullptr;
        OK(ddp_group_create(place.c_str(), &options, &made));
        const GroupHandle group(made);
        body({made, rank, size, Place{rank}});
      },
      limit_ms);
}

/// Every rank runs `body`. Throws what the first one that failed threw.
inline void run_world(int size, const Body& body, int64_t limit_ms = 60'000) {
  is_fake() ? run_threads(size, body, limit_ms) : run_processes(size, body, limit_ms);
}

/// How many GPUs there are, found out by a child, so that this process may fork afterwards.
inline int32_t count_devices_elsewhere(std::string& why) {
  if (is_fake()) return count_devices(why);
  Procs procs(1, [](int, Reporter& report) {
    std::string reason;
    const int32_t count = count_devices(reason);
    report.say(std::to_string(count));
    return reason;
  });
  const ProcResult result = procs.wait(60'000).at(0);
  why = result.text;
  return result.exit_code == 0 ? std::atoi(result.said.c_str()) : 0;
}

inline void sum_of_ranks(const Rank& at) {
  const Stream stream(at.place);
  const Memory memory(at.place, 4);
  memory.write(encoded_one(1.0F + static_cast<float>(at.rank)));
  const ddp_tensor tensor = flat(memory.data(), DDP_F32, 1, at.place);
  OK(ddp_group_all_reduce(at.group, &tensor, DDP_SUM, stream.get()));
  stream.wait();
  expect(memory.read() == encoded_one(static_cast<float>(at.size * (at.size + 1) / 2)), "the sum of the ranks is right");
}

/// Ends the program as skipped without a GPU, or if NCCL does not let two ranks share the only one. First line of a main()
/// whose tests fork.
inline void need_world() {
  std::string why;
  const int32_t count = count_devices_elsewhere(why);
  if (count == 0) end_skipped("no GPU: " + why);
  std::printf("on %s, %d GPU%s%s\n", table().name, count, count == 1 ? "" : "s",
              count == 1 ? ", which the ranks share" : "");
  std::fflush(stdout);
  if (is_fake() || count > 1) return;
  try {
    run_world(2, sum_of_ranks);
  } catch (const std::exception& error) {
    end_skipped(std::string("NCCL does not run two ranks on this GPU: ") + error.what());
  }
}

}  // namespace ddp::test::card

/// The head of a case whose body is that of each rank, with `at`, for some numbers of ranks: ddp_world_case(sums, 2, 3) {
/// ... }
#define ddp_world_case(function, ...)                                                               \
  void function(const ddp::test::card::Rank&);                                                      \
  [[maybe_unused]] const bool function##_is_listed = ddp::test::list_case(__FILE__, #function, [] { \
    for (const int size : {__VA_ARGS__}) run_world(size, function);                                 \
  });                                                                                               \
  void function(const ddp::test::card::Rank& at)
