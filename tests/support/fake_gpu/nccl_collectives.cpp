// SPDX-License-Identifier: Apache-2.0
// Collectives: the work that a call queues, and how the ranks' streams meet.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/launch.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

struct Group {
  int32_t depth = 0;
  int64_t generation = 0;
  int32_t failure = kNcclOk;
  std::vector<Request> requests;
};
thread_local Group group;

/// One rank's part in a collective.
struct Part {
  CommPtr comm;
  uint64_t number;
  Spec spec;
  const void* send;  // real addresses
  void* receive;
  int64_t receive_bytes;
  std::vector<Transfer> transfers;
  std::optional<uint64_t> turn;  // on its device
};

/// NCCL_LAUNCH_ORDER_IMPLICIT, of 2.26 and later: collectives of all communicators begin in the order of the host's calls.
std::optional<uint64_t> take_turn(Runtime& r, int32_t device) {
  const char* const asked = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (r.state->options.nccl_version < 22602 || asked == nullptr || std::atoi(asked) == 0) return std::nullopt;
  return r.state->nccl_turns[device].given++;
}

void end_turn(Runtime& r, const Part& part) {
  if (!part.turn) return;
  State::Turns& turns = r.state->nccl_turns[part.comm->device];
  turns.given_up.insert(*part.turn);
  while (turns.given_up.erase(turns.begun) > 0) ++turns.begun;
  r.changed.notify_all();
}

void spoil(const Part& part) {
  if (part.receive != nullptr) std::memset(part.receive, kAborted, static_cast<size_t>(part.receive_bytes));
  for (const Transfer& each : part.transfers)
    if (!each.sends) std::memset(each.data, kAborted, static_cast<size_t>(each.bytes));
}

std::string metadata_of(const Spec& spec) {
  return std::string(spec.name) + " of " + std::to_string(spec.count) + " " +
         dtype_name(static_cast<ddp_dtype>(spec.dtype)) + ", reduce " + std::to_string(spec.reduce) + ", root " +
         std::to_string(spec.root);
}

bool equal(const Spec& a, const Spec& b) {
  return std::strcmp(a.name, b.name) == 0 && a.count == b.count && a.dtype == b.dtype && a.reduce == b.reduce &&
         a.root == b.root;
}

void arrive(Runtime& r, Collective& collective, const Part& part) {
  const auto rank = static_cast<size_t>(part.comm->rank);
  if (collective.arrived == 0) {
    collective.spec = part.spec;
    collective.first = part.comm->rank;
    collective.ranks.resize(static_cast<size_t>(part.comm->world->size));
  } else if (!equal(collective.spec, part.spec)) {
    collective.agreed = false;
    r.violate("ranks of " + part.comm->world->name + " disagree about collective " + std::to_string(part.number) +
              ": rank " + std::to_string(collective.first) + " has " + metadata_of(collective.spec) + ", rank " +
              std::to_string(part.comm->rank) + " has " + metadata_of(part.spec));
  }
  collective.ranks[rank] = Arrival{true, part.send, part.receive, part.transfers};
  ++collective.arrived;
}

/// The kernel's place on its device, where others may wait for their ranks. False: aborted before there was one.
bool take_place(Runtime& r, Lock& lock, const Part& part) {
  const int64_t most = r.state->options.nccl_at_once;
  int32_t& taken = r.state->nccl_on_device[part.comm->device];
  const auto may_begin = [&] {
    return (most == 0 || taken < most) && (!part.turn || r.state->nccl_turns[part.comm->device].begun == *part.turn);
  };
  r.changed.wait(lock, [&] { return r.stopping || part.comm->aborted || may_begin(); });
  const bool begins = !r.stopping && may_begin();
  if (begins) ++taken;
  if (!r.stopping) end_turn(r, part);
  return begins;
}

/// Run by the stream's thread. A missing rank lets it wait for ever, as NCCL's kernel does, until abort.
void take_part(const Part& part) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const bool has_place = take_place(r, lock, part);
  World& world = *part.comm->world;
  std::shared_ptr<Collective>& place = world.running[part.number];
  if (place == nullptr) place = std::make_shared<Collective>();
  const std::shared_ptr<Collective> collective = place;
  if (!part.comm->aborted) arrive(r, *collective, part);
  if (collective->arrived == world.size && !world.is_anyone_aborted()) {
    const std::string wrong = collective->agreed ? compute(*collective) : std::string();
    if (!wrong.empty()) r.violate("in collective " + std::to_string(part.number) + " of " + world.name + ", " + wrong);
    collective->done = true;
    ++r.state->collectives;
    world.running.erase(part.number);
    r.changed.notify_all();
  }
  r.changed.wait(lock, [&] { return r.stopping || collective->done || part.comm->aborted; });
  if (!collective->done || !collective->agreed) spoil(part);
  --part.comm->pending;
  if (has_place) --r.state->nccl_on_device[part.comm->device];
  r.changed.notify_all();
}

int32_t queue_transfers(Runtime& r, const Request& request) {
  Touches touches(r, *request.stream, request.spec.name);
  std::vector<Transfer> real = request.transfers;
  for (Transfer& each : real) {
    auto* const data = static_cast<std::byte*>(each.data);
    each.data = each.sends ? const_cast<std::byte*>(touches.read(data, each.bytes)) : touches.write(data, each.bytes);
  }
  if (!touches.ok()) return kNcclInvalidArgument;
  const auto instantiate = [&r, request, real]() -> Work {
    ++request.comm->pending;
    const Part part{
        request.comm, request.comm->next++, request.spec, nullptr, nullptr, 0, real, take_turn(r, request.comm->device)};
    return [part] { take_part(part); };
  };
  r.enqueue(request.stream, Operation{request.spec.name, touches.take(), nullptr, instantiate});
  return kNcclOk;
}

int32_t queue(Runtime& r, const Request& request) {
  if (!request.transfers.empty()) return queue_transfers(r, request);
  const Extent extent = extent_of(request.spec, request.comm->world->size);
  Touches touches(r, *request.stream, request.spec.name);
  const auto* const send = touches.read(static_cast<const std::byte*>(request.send), extent.send);
  auto* const receive = touches.write(static_cast<std::byte*>(request.receive), extent.receive);
  if (!touches.ok()) return kNcclInvalidArgument;
  const auto instantiate = [&r, request, send, receive, extent]() -> Work {
    ++request.comm->pending;
    const Part part{request.comm, request.comm->next++, request.spec, send,
                    receive,      extent.receive,       {},           take_turn(r, request.comm->device)};
    return [part] { take_part(part); };
  };
  r.enqueue(request.stream, Operation{request.spec.name, touches.take(), nullptr, instantiate});
  return kNcclOk;
}

/// Nothing orders the operations of one group: they must not touch the same bytes.
void check_group(Runtime& r, const std::vector<Request>& requests) {
  Races races;
  size_t actor = 0;
  for (const Request& request : requests) {
    const Extent extent = extent_of(request.spec, request.comm->world->size);
    Clock clock;
    clock.tick(actor);
    std::vector<Access> accesses{{address_of(request.send), extent.send, false},
                                 {address_of(request.receive), extent.receive, true}};
    if (!request.transfers.empty()) {
      const Transfer& only = request.transfers.front();
      accesses = {{address_of(only.data), only.bytes, !only.sends}};
    }
    const std::string name = std::string(request.spec.name) + " (operation " + std::to_string(actor + 1) + " of a group)";
    for (std::string& text : races.touch(accesses, actor++, clock, name)) r.violate(std::move(text));
  }
}

/// Sends and receives of one communicator and stream become one operation, at the place of the first.
std::vector<Request> joined(const std::vector<Request>& requests) {
  std::vector<Request> all;
  for (const Request& request : requests) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Request& other) {
      return !request.transfers.empty() && !other.transfers.empty() && other.comm == request.comm &&
             other.stream == request.stream;
    });
    if (same == all.end())
      all.push_back(request);
    else
      same->transfers.insert(same->transfers.end(), request.transfers.begin(), request.transfers.end());
  }
  return all;
}

}  // namespace

bool in_group(const Runtime& r) {
  if (group.generation != r.generation) group = Group{0, r.generation, kNcclOk, {}};
  return group.depth > 0;
}

int32_t submit(Runtime& r, Request request) {
  if (request.spec.count == 0) return kNcclOk;
  if (!in_group(r)) return queue(r, request);
  ++request.comm->uses;  // until group_end
  group.requests.push_back(std::move(request));
  return kNcclOk;
}

namespace nccl_entry {

int32_t group_start() {
  Call call{"nccl.group_start"};
  call.is_nccl = true;
  return entered(call, [](Runtime& r, Lock&) -> int32_t {
    (void)in_group(r);
    ++group.depth;
    return kNcclOk;
  });
}

int32_t group_end() {
  Call call{"nccl.group_end"};
  call.enqueues = true;
  call.is_nccl = true;
  return entered(call, [](Runtime& r, Lock& lock) -> int32_t {
    if (!in_group(r)) return kNcclInvalidUsage;
    if (--group.depth > 0) return kNcclOk;
    const std::vector<Request> requests = std::exchange(group.requests, {});
    check_group(r, requests);
    int32_t result = kNcclOk;
    for (const Request& request : requests) end_use(*request.comm);
    for (const Request& request : joined(requests)) {
      int32_t code = connect_for(r, lock, request);
      if (code == kNcclOk || code == kNcclInProgress)
        code = request.comm->state == CommState::kReady ? queue(r, request) : static_cast<int32_t>(kNcclInvalidUsage);
      if (result == kNcclOk) result = code;
    }
    int32_t all = result;
    for (const Request& request : requests) all = go_on(r, *request.comm, result);
    return all;
  });
}

}  // namespace nccl_entry
}  // namespace ddp::test::fake_gpu
