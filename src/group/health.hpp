// SPDX-License-Identifier: Apache-2.0
// Is a group usable? What breaks it first is the answer of every later call, on all ranks (bootstrap/failure.hpp).
// Threads: any.
// Tested by process/first_cause_test.cpp, gpu_host/failure_test.cpp and scarce/collectives_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/error.hpp"

namespace ddp::bootstrap {
class Control;
enum class Leaving : uint8_t;
class Failure;
}  // namespace ddp::bootstrap

namespace ddp::group {

class Health {
 public:
  /// Both live longer.
  Health(bootstrap::Control& control, bootstrap::Failure& failure);

  /// Throws INVALID_STATE if the group was destroyed, or the process ends.
  void check_open() const;
  /// As check_open, and throws the first cause if the group is broken.
  void check_usable() const;
  /// As check_usable, but a rank that left in good order is no reason to refuse what needs no other rank.
  void check_no_fault() const;
  /// Is it broken? Not if a rank left in good order.
  [[nodiscard]] bool has_fault() const noexcept;

  void abort(const Error& cause) noexcept;
  // As in control/breaking.hpp.
  void give_up(const char* function, const Error& why) noexcept;
  void fail(const Error& error);
  /// Of a message, in a group that a rank has left in good order: then the control plane is over, and no other rank can
  /// learn of it. The error is a fault of this rank alone, except that the other rank of the message has left too. False:
  /// the group is whole, or has a fault.
  [[nodiscard]] bool fail_alone(const Error& error) noexcept;

  /// The group ends: from now on it is destroyed. False if it was before.
  [[nodiscard]] bool begin_close() noexcept { return end(Life::kDestroyed); }
  /// This rank leaves. After it no thread of the control plane touches the transports.
  void leave() noexcept;
  /// The same when the process ends by exit(): waiting threads here are not woken.
  [[nodiscard]] bool begin_exit() noexcept { return end(Life::kExits); }
  void exit(bootstrap::Leaving how) noexcept;

 private:
  enum class Life { kStands, kDestroyed, kExits };
  [[nodiscard]] bool end(Life how) noexcept { return life_.exchange(how) == Life::kStands; }

  bootstrap::Control& control_;
  bootstrap::Failure& failure_;
  std::atomic<Life> life_{Life::kStands};
  // Made in time, for when there is no memory.
  const Error destroyed_{DDP_ERROR_INVALID_STATE, "the group was destroyed"};
  const Error gave_up_;
};

}  // namespace ddp::group
