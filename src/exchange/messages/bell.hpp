// SPDX-License-Identifier: Apache-2.0
// Where a rank's threads sleep until something has come for them: a word that changes, and how many sleep. Both may lie in
// memory that other processes have mapped, and ring.
// A sleeper counts itself before its last look, and whoever rings looks for sleepers after its store; both orders are
// sequentially consistent, so no ring is lost.
// Threads: any.
// Tested by unit/exchange/messenger_test.cpp.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace ddp::messages {

class Bell {
 public:
  /// Both live longer.
  Bell(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleeping) noexcept : word_(&word), sleeping_(&sleeping) {}

  /// Wake all sleepers, if there are any.
  void ring() const noexcept {
    if (sleeping_->load() == 0) return;
    word_->fetch_add(1);
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(word_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  /// Sleep until somebody rings, at most `ms`; not at all if `look()` finds something.
  template <class Look>
  void sleep(int64_t ms, Look&& look) const {
    sleeping_->fetch_add(1);
    struct Awake {
      std::atomic<uint32_t>* sleeping;
      ~Awake() { sleeping->fetch_sub(1); }
    } const awake{sleeping_};
    const uint32_t seen = word_->load();
    if (look()) return;
    timespec time{ms / 1000, ms % 1000 * 1'000'000};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(word_), FUTEX_WAIT, seen, &time, nullptr, 0);
  }

 private:
  std::atomic<uint32_t>* word_;
  std::atomic<uint32_t>* sleeping_;
};

}  // namespace ddp::messages
