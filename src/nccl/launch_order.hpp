// SPDX-License-Identifier: Apache-2.0
// Whether the hosts begin the collectives of several groups on one GPU in one order.
//
// A kernel of NCCL waits on its GPU for the other ranks. If there is no room for all of them at once, ranks that begin the
// collectives of two communicators in different orders wait for each other for ever. NCCL keeps the order of the host's
// calls on the GPU itself from 2.26 on, where NCCL_LAUNCH_ORDER_IMPLICIT=1 asks for that; without it a process has one group
// with GPUs at a time, and Engine refuses a second one.
//
// Different orders of the hosts cannot be repaired, but are detected: word() returns this rank's progress in the other
// groups that all ranks of this one are in, or that are within it. It is compared before, or together with, each collective.
// Cost: a mutex for each collective. Threads: any. Tested by gpu_host/several_groups_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "os/patient_mutex.hpp"

namespace ddp::nccl {

/// The collectives that a group has enqueued on this rank's GPU. Outlives the group where another one counts with it.
struct LaunchCount {
  uint64_t id = 0;  // of the group, the same on all its ranks
  int32_t ranks = 0;
  std::atomic<uint64_t> launched{0};
  std::atomic<bool> ended{false};  // there will be no more
};
using LaunchCounts = std::vector<std::shared_ptr<const LaunchCount>>;

/// Does NCCL keep the order of the host's calls on a GPU? As its version and NCCL_LAUNCH_ORDER_IMPLICIT say.
[[nodiscard]] bool keeps_launch_order(int32_t nccl_version) noexcept;
/// NOT_SUPPORTED: a second group with GPUs in a process where NCCL does not.
[[nodiscard]] Error no_launch_order(const std::string& device, int32_t nccl_version);

/// DIFFERENT_CALLS: the ranks came to `what` at different points of other groups' collectives.
[[nodiscard]] Error order_mismatch(const char* what);

/// A number that no other group has.
[[nodiscard]] uint64_t new_group_id();

class LaunchOrder {
 public:
  /// The groups that are on this GPU now, and have not ended.
  [[nodiscard]] static LaunchCounts present(int32_t device_index);

  /// A group of `ranks` comes to a GPU. `here`: present() on this rank; `everywhere`: the ids in it on each rank, for the
  /// same call. `check` ends the wait for a collective that another group is enqueueing.
  LaunchOrder(int32_t device_index, uint64_t id, int32_t ranks, const LaunchCounts& here,
              const std::vector<std::vector<uint64_t>>& everywhere, const std::function<void()>& check);
  ~LaunchOrder();
  /// The group makes no more collectives. Any thread, never waits.
  void end() noexcept { count_->ended.store(true); }
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// 0: there is no group to compare with. Else its halves are each other's complement.
  [[nodiscard]] uint64_t word() const;
  /// As it was when the last collective was enqueued.
  [[nodiscard]] uint64_t last_word() const noexcept { return last_word_.load(); }
  /// Of the words of all ranks, joined by a bitwise or: are there two different ones?
  [[nodiscard]] static bool differs(uint64_t joined) noexcept {
    return (static_cast<uint32_t>(joined) & static_cast<uint32_t>(joined >> 32)) != 0;
  }

  /// As long as it lives, this thread alone enqueues a collective on the GPU.
  class Turn {
   public:
    /// Waits no longer for its turn once `usable` is false.
    Turn(LaunchOrder& order, const std::atomic<bool>& usable);
    /// It is enqueued.
    void done();

   private:
    LaunchOrder& order_;
    std::unique_lock<os::PatientMutex> lock_;
  };

 private:
  struct OnDevice;
  static std::shared_ptr<OnDevice> on_device(int32_t index);
  // With the mutex of all_:
  [[nodiscard]] uint64_t word_now() const noexcept;
  void compare_with(const std::shared_ptr<const LaunchCount>& other);
  void forget_ended() noexcept;

  const std::shared_ptr<OnDevice> all_;
  const std::shared_ptr<LaunchCount> count_;
  struct Compared {
    bool any = false;
    LaunchCounts with;
    uint64_t ended = 0;  // what those count that have ended
  } compared_;           // guarded by the mutex of all_
  std::atomic<uint64_t> last_word_{0};
};

}  // namespace ddp::nccl
