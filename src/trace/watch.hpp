// SPDX-License-Identifier: Apache-2.0
// What a group tells of itself while it works, for whoever watches the rank from outside. Nobody watches: the group has no
// Watch, and whoever would tell something looks at one pointer.
// Cost: some relaxed stores, and a look at the clock where none was taken. Nothing is allocated.
// Threads: any, but for regroup().
// Tested by unit/trace/live_test.cpp and process/live_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/live.hpp"

namespace ddp::trace {

/// A pass that ended well.
struct PassNumbers {
  int64_t backward_ns = 0;
  int64_t comm_ns = 0;
  int64_t exposed_ns = 0;
  int64_t sent_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t buckets = 0;
  int64_t largest_bucket = 0;   // bytes
  int64_t smallest_bucket = 0;  // bytes
};

class Watch {
 public:
  explicit Watch(std::unique_ptr<LiveFile> live) noexcept : live_(std::move(live)) {}
  /// What this process writes into the folder that its launcher watches (DDP_WATCH_DIR). NULL: none does, or another group
  /// of the process writes already, or it cannot be written, which is said in the log.
  [[nodiscard]] static std::shared_ptr<Watch> of_launcher(const char* folder, int32_t number, const std::string& host,
                                                          int32_t size) noexcept;

  /// Who the rank is in its group, which is the n-th generation: 1 as it was created, one more with each recovery.
  void regroup(int32_t rank, int32_t size, int64_t generation) noexcept;
  void end_recovery() noexcept;
  /// A public collective call (bootstrap::UserCall) begins, and has returned.
  void enter(int32_t call) noexcept;
  void leave() noexcept;
  void end_pass(const PassNumbers& numbers) noexcept;
  void void_pass() noexcept;
  void end_step(int64_t begin_ns) noexcept;
  void end_save(int64_t begin_ns) noexcept;

 private:
  [[nodiscard]] bool is_silent() const noexcept { return live_ == nullptr || !live_->is_ours(); }
  std::unique_ptr<LiveFile> live_;
};

}  // namespace ddp::trace
