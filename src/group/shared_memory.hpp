// SPDX-License-Identifier: Apache-2.0
// Memory of the program that a group shares where it is (shm/lent.hpp), in groups whose ranks share memory.
// Threads: any, while no collective call runs.
// Tested by capi/shared_memory_test.cpp, capi/shared_memory_end_test.cpp and capi/woken_rank_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::group {

class Group;

struct SharedMemory {
  /// No thread writes to it meanwhile. Throws NOT_SUPPORTED with the reason, INVALID_ARGUMENT (some of it is shared),
  /// OUT_OF_MEMORY, and the cause that has broken the group; then nothing has changed.
  static void share(Group& group, void* data, int64_t bytes);
  /// The way back, by the address that it was shared with. Throws INVALID_ARGUMENT, INVALID_STATE, OUT_OF_MEMORY.
  static void unshare(Group& group, void* data);
  /// All of it is private until the group recovers. Writing threads lose nothing. What cannot be is in the log.
  static void make_private(Group& group) noexcept;
};

}  // namespace ddp::group
