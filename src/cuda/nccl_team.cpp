// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_team.hpp"

#include <new>

#include "cuda/nccl_device.hpp"

namespace ddp::cuda {

#if defined(DDP_NCCL_DEVICE)
namespace {

/// Of the one NCCL of this process.
const nccl::DeviceFunctions*& opened() noexcept {
  static const nccl::DeviceFunctions* one = nullptr;
  return one;
}
nccl::Comm* as_comm(void* comm) noexcept { return static_cast<nccl::Comm*>(comm); }

/// It is filled by the end of the call, so the caller gives it back whatever becomes of that.
int32_t team_create(void* comm, int32_t barriers, void** out) noexcept {
  auto* const team = new (std::nothrow) Team{};
  *out = team;
  if (team == nullptr) return nccl::kSystemError;
  ncclDevCommRequirements requirements{};
  requirements.lsaMultimem = true;
  requirements.lsaBarrierCount = barriers;
  return opened()->DevCommCreate(as_comm(comm), &requirements, &team->comm);
}

int32_t team_destroy(void* comm, void* team) noexcept {
  auto* const own = static_cast<Team*>(team);
  const nccl::Result code =
      comm != nullptr && own->comm.resourceWindow != nullptr ? opened()->DevCommDestroy(as_comm(comm), &own->comm) : 0;
  delete own;
  return code;
}

int32_t window_register(void* comm, void* memory, int64_t bytes, void** out) noexcept {
  *out = nullptr;
  return opened()->CommWindowRegister(as_comm(comm), memory, static_cast<size_t>(bytes), out, NCCL_WIN_COLL_SYMMETRIC);
}

int32_t window_deregister(void* comm, void* window) noexcept {
  return opened()->CommWindowDeregister(as_comm(comm), window);
}

/// One address for all ranks, and all of them on this node?
int32_t team_has_multicast(const void* team) noexcept {
  const ncclDevComm& comm = static_cast<const Team*>(team)->comm;
  return comm.lsaMultimem.mcBasePtr != nullptr && comm.lsaSize == comm.nRanks ? 1 : 0;
}

}  // namespace

void fill_teams(ddp_nccl_table& table, const nccl::Library& library) noexcept {
  if (library.version != kNcclDeviceVersion || library.functions.device.DevCommCreate == nullptr) return;
  opened() = &library.functions.device;
  table.team_create = team_create;
  table.team_has_multicast = team_has_multicast;
  table.team_destroy = team_destroy;
  table.window_register = window_register;
  table.window_deregister = window_deregister;
}
#else
void fill_teams(ddp_nccl_table&, const nccl::Library&) noexcept {}
#endif

}  // namespace ddp::cuda
