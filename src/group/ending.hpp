// SPDX-License-Identifier: Apache-2.0
// The end of a group whose process ends, or that has broken and does not recover. Threads: any, unless stated otherwise.
// Tested by capi/exit_test.cpp, gpu_host/exit_test.c and capi/woken_rank_test.cpp.
#pragma once

#include <memory>
#include <vector>

namespace ddp::bootstrap {
class Failure;
}  // namespace ddp::bootstrap
namespace ddp::collective {
class Arena;
}  // namespace ddp::collective

namespace ddp::group {

class Group;

struct Ending {
  /// What is done first when the group ends; a later one takes the place of an earlier one.
  static void begin_with(Group& group, void (*action)(Group&) noexcept) noexcept;

  /// The process ends by exit(): say so to the others, and let nothing of this group call what exit() takes down. Whatever
  /// other threads do; not while the group recovers, which then is a death.
  static void exit(Group& group) noexcept;

  /// If the group has broken: a rank that was left behind, and resumes later, must not reach this one's memory any more. The
  /// memory that the group gave out is moved to other pages, at the same addresses; no thread may write to it meanwhile.
  /// Nothing if the ranks are threads. Local. Throws OUT_OF_MEMORY.
  static void fence_memory(Group& group);
  /// The same for one arena that outlives its group; what goes wrong is logged.
  static void fence(collective::Arena& arena) noexcept;

  /// Not if this rank has left it, as it does in good order.
  [[nodiscard]] static bool has_broken(const bootstrap::Failure& failure) noexcept;
};

}  // namespace ddp::group
