// SPDX-License-Identifier: Apache-2.0
// In which order the collectives of several groups run on one GPU.
//
// A kernel of NCCL waits on its GPU for the other ranks. If there is no room for all of them at once, ranks that begin the
// collectives of two communicators in different orders wait for each other for ever. So the collectives of all groups that
// this process has on a GPU run one after the other, as the host enqueued them: each waits, by an event, for the one before
// it if that was another group's. Within a captured graph the same holds for what was captured. A program that sets
// NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26) leaves the order to NCCL, which can let them overlap; then there are no events.
//
// What the hosts do in different orders nobody can put right, but it can be seen: word() says how far this rank has come in
// the other groups that all ranks of this one are in, or that are within it, and is compared before, or beside, each
// collective.
// Cost: alone on its GPU a group pays for a mutex, else two or three calls of the runtime for each collective.
// Threads: any.
// Tested by gpu_host/several_groups_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/error.hpp"
#include "device/gpu/device.hpp"
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

/// Who keeps the order.
enum class OrderedBy { kEvents, kNccl };
[[nodiscard]] OrderedBy who_orders(int32_t nccl_version) noexcept;

/// DIFFERENT_CALLS: the ranks came to `what` at different points of other groups' collectives.
[[nodiscard]] Error order_mismatch(const char* what);

/// A number that no other group has.
[[nodiscard]] uint64_t new_group_id();

class LaunchOrder {
 public:
  /// The groups that are on this GPU now.
  [[nodiscard]] static LaunchCounts present(int32_t device_index);

  struct Group {
    uint64_t id = 0;
    int32_t ranks = 1;
    OrderedBy by = OrderedBy::kEvents;
  };
  /// A group comes to this GPU, with its communication stream. `here`: present() on this rank; `everywhere`: the ids in it
  /// on each rank, for the same call. `check` ends the wait for a collective that another group is enqueueing.
  LaunchOrder(const gpu::Device& device, void* stream, const Group& group, const LaunchCounts& here,
              const std::vector<std::vector<uint64_t>>& everywhere, const std::function<void()>& check);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// Are there other groups on this GPU whose order is kept here?
  [[nodiscard]] bool has_company() const;

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
    /// What comes on the group's stream waits for the last collective of another group. Waits no longer for its turn once
    /// `usable` is false.
    Turn(LaunchOrder& order, const std::atomic<bool>& usable);
    /// It is enqueued.
    void done();

   private:
    LaunchOrder& order_;
    std::unique_lock<os::PatientMutex> lock_;
    bool chained_ = false;
    uint64_t capture_ = 0;  // of the stream; 0: none
  };

 private:
  struct OnDevice;
  static std::shared_ptr<OnDevice> on_device(int32_t index);
  // With the mutex of all_:
  [[nodiscard]] bool is_chained() const;
  [[nodiscard]] uint64_t word_now() const noexcept;
  void compare_with(const std::shared_ptr<const LaunchCount>& other);
  void forget_ended() noexcept;

  const gpu::Device& device_;
  void* const stream_;
  const OrderedBy by_;
  const std::shared_ptr<OnDevice> all_;
  const std::shared_ptr<LaunchCount> count_;
  struct Compared {
    bool any = false;
    LaunchCounts with;
    uint64_t ended = 0;               // what those count that have ended
  } compared_;                        // guarded by the mutex of all_
  const gpu::Event live_, captured_;  // the last collective of this group
  std::atomic<uint64_t> last_word_{0};
};

}  // namespace ddp::nccl
