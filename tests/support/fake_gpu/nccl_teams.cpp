// SPDX-License-Identifier: Apache-2.0
// Teams and windows for multicast: made by all ranks of a communicator together, in one order.
#include <algorithm>
#include <utility>

#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

Call team_call(const char* name, const CommPtr& comm) {
  Call call{name};
  call.is_nccl = true;
  if (comm != nullptr) call.device = comm->device;
  return call;
}

CommPtr find_comm(void* handle) {
  if (is_fork()) return nullptr;
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const auto found = r.state->comms.find(handle);
  return found == r.state->comms.end() ? nullptr : found->second;
}

template <class Body>
int32_t with_comm(void* handle, const char* name, Body&& body) {
  return entered(team_call(name, find_comm(handle)), [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr) return kNcclInvalidArgument;
    begin_use(r, lock, *comm, name);
    int32_t code = kNcclInvalidUsage;
    if (!comm->aborted && comm->state == CommState::kReady) code = body(r, lock, comm);
    end_use(*comm);
    return code;
  });
}

}  // namespace

namespace nccl_entry {

int32_t team_create(void* handle, int32_t barriers, void** out) {
  return with_comm(handle, "nccl.team_create", [&](Runtime& r, Lock& lock, const CommPtr& comm) -> int32_t {
    if (out == nullptr || barriers < 1) return kNcclInvalidArgument;
    *out = reinterpret_cast<void*>(r.state->space.new_handle());
    r.state->teams[*out] = Team{comm, barriers, false};
    if (r.state->options.multicast != 1) return fail(*comm, kNcclInvalidArgument, "no multicast on this system");
    return set_up(r, lock, *comm, "a team with " + std::to_string(barriers) + " barriers", [&r, team = *out] {
      if (const auto found = r.state->teams.find(team); found != r.state->teams.end()) found->second.made = true;
    });
  });
}

int32_t team_has_multicast(const void* team) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const auto found = r.state->teams.find(const_cast<void*>(team));
  return found != r.state->teams.end() && found->second.made ? 1 : 0;
}

int32_t team_destroy(void* handle, void* team) {
  return entered(team_call("nccl.team_destroy", handle == nullptr ? nullptr : find_comm(handle)),
                 [&](Runtime& r, Lock&) -> int32_t {
                   const auto found = r.state->teams.find(team);
                   if (found == r.state->teams.end()) return kNcclInvalidArgument;
                   if (handle != nullptr && found->second.comm->kernels > 0)
                     r.violate("a team of " + found->second.comm->name() + " is destroyed while a kernel may use it");
                   r.state->teams.erase(found);
                   return kNcclOk;
                 });
}

int32_t window_register(void* handle, void* memory, int64_t bytes, void** out) {
  return with_comm(handle, "nccl.window_register", [&](Runtime& r, Lock& lock, const CommPtr& comm) -> int32_t {
    const Block* const block = r.state->space.find(address_of(memory));
    if (out == nullptr || block == nullptr || block->kind != BlockKind::kNccl || block->device != comm->device ||
        block->begin != address_of(memory) || bytes != block->bytes)
      return fail(*comm, kNcclInvalidArgument, "this is no whole piece of mem_alloc");
    *out = nullptr;
    const uint64_t number = comm->setups;
    return set_up(r, lock, *comm, "a window of " + std::to_string(bytes) + " bytes behind " + comm->past,
                  [&r, alive = std::weak_ptr(comm), number, begin = block->begin, out] {  // its world keeps this
                    const CommPtr here = alive.lock();
                    if (here == nullptr) return;
                    *out = reinterpret_cast<void*>(r.state->space.new_handle());
                    r.state->windows[*out] = Window{here, number, begin};
                    here->past += "+";
                  });
  });
}

int32_t window_deregister(void* handle, void* window) {
  return with_comm(handle, "nccl.window_deregister", [&](Runtime& r, Lock&, const CommPtr& comm) -> int32_t {
    const auto found = r.state->windows.find(window);
    if (found == r.state->windows.end() || found->second.comm != comm) return kNcclInvalidArgument;
    if (comm->kernels > 0) r.violate("a window of " + comm->name() + " is deregistered while a kernel may use it");
    comm->past += "-" + std::to_string(found->second.number);
    r.state->windows.erase(found);
    return kNcclOk;
  });
}

}  // namespace nccl_entry

namespace entry {

int32_t device_multicast(int32_t device, int32_t* out_has) {
  return entered(Call{"device_multicast"}, [&](Runtime& r, Lock&) -> int32_t {
    if (out_has == nullptr || device < 0 || device >= r.state->options.devices) return kInvalidValue;
    expect_current(r, device, "device_multicast");
    *out_has = r.state->options.multicast != 0 ? 1 : 0;
    return kOk;
  });
}

}  // namespace entry
}  // namespace ddp::test::fake_gpu
