// SPDX-License-Identifier: Apache-2.0
#include "group/shared_memory.hpp"

#include "group/ending.hpp"
#include "group/group.hpp"
#include "group/memory.hpp"
#include "shm/region.hpp"

namespace ddp::group {
namespace {

/// The group's region; NULL if its ranks share no memory.
shm::Region* region_of(const std::shared_ptr<collective::Arena>& arena) noexcept {
  return dynamic_cast<shm::Region*>(arena.get());
}

}  // namespace

void SharedMemory::share(Group& group, void* data, int64_t bytes) {
  group.health().check_usable();
  shm::Region* const region = region_of(Ending::arenas_of(group).back());
  if (region == nullptr)
    throw Error(DDP_ERROR_NOT_SUPPORTED, "ddp_group_share: the ranks of this group share no memory; it stays private");
  region->share(data, bytes);
}

void SharedMemory::unshare(Group& group, void* data) {
  for (const auto& arena : Ending::arenas_of(group))
    if (shm::Region* const region = region_of(arena); region != nullptr && region->unshare(data)) return;
  throw Error(DDP_ERROR_INVALID_ARGUMENT,
              "ddp_group_unshare: no memory was shared with this group by this address, or it was made private already");
}

void SharedMemory::make_private(Group& group) noexcept {
  for (const auto& arena : Ending::arenas_of(group))
    if (shm::Region* const region = region_of(arena)) (void)region->make_private();
}

}  // namespace ddp::group
