// SPDX-License-Identifier: Apache-2.0
// What the control plane costs as groups grow: messages, bytes and hops from 8 to 4,096 ranks, counted with the state
// machines that the library uses, and no sockets. bench.control_size [largest number of ranks]
//
// Columns: what rank 0 sends and receives, and what any other rank does at most; bytes as they stand on the wire. A hop is
// one message after another. Hosts have 8 ranks.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "support/control_world.hpp"

namespace ddp::test {
namespace {

constexpr int32_t kRanksPerHost = 8;

std::vector<bootstrap::Member> members(int32_t first, int32_t end) {
  std::vector<bootstrap::Member> all;
  for (int32_t rank = first; rank < end; ++rank) {
    bootstrap::Member member = member_of(rank);
    const std::string host = std::to_string(1'000 + rank / kRanksPerHost);
    member.id = rank;
    member.host = "node-" + host;
    member.boot_id = host + "5c2e-0f4d-4a53-9d6a-3f1c8b7e9a";
    member.address = "10.20." + std::to_string(rank / kRanksPerHost / 250) + "." + host;
    all.push_back(member);
  }
  return all;
}

bootstrap::ServerConfig config_of(int32_t size, bool recovers) {
  bootstrap::ServerConfig config{size, bootstrap::auth::group_id("job", "place", ""), "token", 100, 60'000, ""};
  config.recovers = recovers;
  return config;
}

struct Costs {
  Traffic root;  // rank 0, both ways
  Traffic most;  // of the others
};

/// Since the last time.
class Meter {
 public:
  explicit Meter(ControlWorld& world) : world_(world), seen_(world.count()) {}
  void print(const char* what, int hops) {
    Costs costs;
    for (size_t i = 0; i < world_.count(); ++i) {
      const Traffic now{world_[i].up.messages + world_[i].down.messages, world_[i].up.bytes + world_[i].down.bytes};
      const Traffic since{now.messages - seen_[i].messages, now.bytes - seen_[i].bytes};
      seen_[i] = now;
      costs.root.messages += since.messages;
      costs.root.bytes += since.bytes;
      costs.most = {std::max(costs.most.messages, since.messages), std::max(costs.most.bytes, since.bytes)};
    }
    std::printf("| %zu | %s | %" PRId64 " | %" PRId64 " | %" PRId64 " | %" PRId64 " | %d |\n", world_.count(), what,
                costs.root.messages, costs.root.bytes, costs.most.messages, costs.most.bytes, hops);
  }

 private:
  ControlWorld& world_;
  std::vector<Traffic> seen_;
};

void gather(ControlWorld& world, Meter& meter, const char* what, const std::function<std::string(size_t)>& blob) {
  for (size_t i = 0; i < world.count(); ++i) world.gather(i, what, blob(i));
  const int hops = world.hops();
  meter.print(what, hops);
}

void expect_all(ControlWorld& world, const char* what, const std::function<bool(const Peer&)>& holds) {
  for (size_t i = 0; i < world.count(); ++i)
    if (!holds(world[i])) {
      std::fprintf(stderr, "%s: not rank %zu of %zu\n", what, i, world.count());
      std::exit(1);
    }
}

void new_group(int32_t size) {
  ControlWorld world(config_of(size, false), members(0, size));
  Meter meter(world);
  for (size_t i = 0; i < world.count(); ++i) world.connect(i);
  meter.print("create", world.hops());
  expect_all(world, "create", [](const Peer& peer) { return peer.joined; });
  gather(world, meter, "addresses (40 bytes each)",
         [](size_t i) { return std::string(36, 'a') + std::to_string(1'000 + i); });
  gather(world, meter, "commit (all alike)", [](size_t) { return std::string(16, 'h'); });
  expect_all(world, "gather", [](const Peer& peer) { return peer.answers.size() == 2; });
  world.tick(100);
  world.hops();
  meter.print("a heartbeat", world.hops() + 1);
  world.kill(world.count() - 1);
  meter.print("a death", world.hops());
  expect_all(world, "failure", [&](const Peer& peer) { return peer.failed.has_value() || peer.rank == size - 1; });
}

/// Rank 0 has died; those who are left meet at the next.
void recovery(int32_t size) {
  ControlWorld world(config_of(size, true), members(1, size));
  Meter meter(world);
  for (size_t i = 0; i < world.count(); ++i) world.connect(i);
  const int hops = world.hops();
  std::vector<int32_t> ids(world.count());
  std::iota(ids.begin(), ids.end(), 1);
  world.form(ids);
  meter.print("meet again without rank 0", hops + world.hops());
  expect_all(world, "recovery", [](const Peer& peer) { return peer.joined; });
}

}  // namespace
}  // namespace ddp::test

int main(int argc, char** argv) {
  const int32_t largest = argc > 1 ? std::atoi(argv[1]) : 4'096;
  std::printf(
      "| ranks | what | rank 0: messages | bytes | another rank: messages | bytes | hops |\n| --- | --- | --- | --- | --- | "
      "--- | --- |\n");
  for (int32_t size = 8; size <= largest; size *= 2) {
    ddp::test::new_group(size);
    ddp::test::recovery(size);
    std::fflush(stdout);
  }
}
