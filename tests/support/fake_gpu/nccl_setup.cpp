// SPDX-License-Identifier: Apache-2.0
// What the hosts of a communicator's ranks do together, in one order: allocations and connections.
#include <algorithm>

#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

constexpr int64_t kSmall = 32 << 10, kMiddle = 1 << 20;  // bytes; the algorithms change there

/// Until all have come. In progress, if calls do not block.
int32_t await_ranks(Runtime& r, Lock& lock, Comm& comm) {
  if (r.state->options.nccl_looks > 0) return go_on(r, comm, kNcclOk);
  const bool over = r.wait(lock, [&] { return !comm.is_setting_up() || comm.world->is_anyone_aborted(); });
  return over && !comm.is_setting_up() ? static_cast<int32_t>(kNcclOk) : fail(comm, kNcclRemote, "another rank is gone");
}

std::string algorithm_of(const Spec& spec, int32_t size) {
  const Extent extent = extent_of(spec, size);
  const int64_t bytes = std::max(extent.send, extent.receive);
  return std::string(spec.name) + (bytes <= kSmall    ? " of few bytes"
                                   : bytes <= kMiddle ? " of some bytes"
                                                      : " of many bytes");
}

/// The two sides of each link come to it on their own.
int32_t link(Runtime& r, Lock& lock, Comm& comm, const std::vector<Transfer>& transfers) {
  bool is_new = false;
  for (const Transfer& each : transfers) {
    if (!comm.peers.insert(each.peer).second) continue;
    ++comm.world->links[comm.link_to(each.peer)];
    is_new = true;
  }
  if (!is_new) return kNcclOk;
  r.changed.notify_all();
  return await_ranks(r, lock, comm);
}

/// This rank comes to a thing that all ranks make.
int32_t set_up(Runtime& r, Lock& lock, Comm& comm, const std::string& what) {
  World& world = *comm.world;
  const uint64_t number = comm.setups++;
  Setup& setup = world.setups[number];
  if (setup.here == 0) setup.what = what;
  if (setup.what != what)
    r.violate("ranks of " + world.name + " disagree about what they make together: " + setup.what + ", and " + what +
              " on rank " + std::to_string(comm.rank));
  comm.setting_up = number;
  ++setup.here;
  r.changed.notify_all();
  return await_ranks(r, lock, comm);
}

}  // namespace

int32_t connect_for(Runtime& r, Lock& lock, const Request& request) {
  Comm& comm = *request.comm;
  if (!r.state->options.nccl_connects || request.spec.count == 0) return kNcclOk;
  if (!request.transfers.empty()) return link(r, lock, comm, request.transfers);
  const std::string algorithm = algorithm_of(request.spec, comm.world->size);
  if (!comm.algorithms.insert(algorithm).second) return kNcclOk;
  return set_up(r, lock, comm, "connections for " + algorithm);
}

}  // namespace ddp::test::fake_gpu
