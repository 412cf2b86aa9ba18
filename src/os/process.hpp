// SPDX-License-Identifier: Apache-2.0
// Is this still the process that made something, or a fork of it? Every process has a number of its own in its line of
// forks.
// A fork has only the thread that called fork(): what other threads held (a lock, half a change) stays so in it for ever. So
// what is made once for the whole process (tables of handles, the log) is made ready again in each fork, by PerProcess.
// Cost: two loads. Asking the system for the process's number instead is a system call: 0.15 us on a virtual machine, where
// a whole collective of one KiB takes half a microsecond.
// Threads: any.
// Tested by unit/os/process_test.cpp.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace ddp::os {

/// From 1 on, and greater in a fork than in all processes that it descends from. Two forks of one process may have the same
/// number.
[[nodiscard]] uint64_t process_number() noexcept;

/// Runs something once in every process, before any other thread there continues.
class PerProcess {
 public:
  template <class Renew>
  void enter(Renew&& renew) noexcept {
    const uint64_t here = process_number();
    if (ready_.load(std::memory_order_acquire) == here) return;
    uint64_t seen = claimed_.load();
    while (seen != here && !claimed_.compare_exchange_weak(seen, here)) {
    }
    if (seen != here) {
      renew();
      ready_.store(here, std::memory_order_release);
    }
    while (ready_.load(std::memory_order_acquire) != here) sched_yield();
  }

 private:
  std::atomic<uint64_t> ready_{0};
  std::atomic<uint64_t> claimed_{0};
};

}  // namespace ddp::os
