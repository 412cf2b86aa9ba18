// SPDX-License-Identifier: Apache-2.0
// What messages are sent over: a stream of bytes to each other rank, and one back. Implementations: mailboxes in shared
// memory (shm/mailboxes), connections (socket/message_links), and both (hierarchy/). A stream is made when a rank first
// writes to the other one.
// Nothing here waits but for open_all(). Threads: one at a time, but for wake() and bell().
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

#include "os/clock.hpp"

namespace ddp::messages {

// Where a rank's threads sleep until something has come for them: a word that changes, and how many sleep. Both may lie in
// memory that other processes have mapped, and ring.
// A sleeper counts itself before its last look, and whoever rings looks for sleepers after its store; both orders are
// sequentially consistent, so no ring is lost.
// Threads: any.
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

/// Some bytes that are sent.
struct Bytes {
  const std::byte* data = nullptr;
  size_t count = 0;
};

class Streams {
 public:
  virtual ~Streams() = default;

  /// Begin to make the stream to this rank, if nobody has. Throws OUT_OF_MEMORY.
  virtual void open(int32_t peer) = 0;
  /// Send as much of both, one behind the other, as there is room for, and say how much that was. 0 too while the stream is
  /// being made, and if it has ended.
  [[nodiscard]] virtual size_t write(int32_t peer, Bytes first, Bytes second) = 0;
  /// Take what has come, at most so much. 0: nothing is there now.
  [[nodiscard]] virtual size_t read(int32_t peer, std::byte* data, size_t count) = 0;

  /// The ranks from which something may have come. Grows; valid until the next call.
  [[nodiscard]] virtual const std::vector<int32_t>& sources() = 0;
  /// The connection to this rank is over, and what has come over it was read.
  [[nodiscard]] virtual bool has_ended(int32_t peer) = 0;
  /// May something that this rank has sent already come later? Not over shared memory.
  [[nodiscard]] virtual bool is_on_its_way(int32_t peer) = 0;
  /// There is no stream to this rank, and none can be made any more, because a rank has left the group. Not over shared
  /// memory.
  [[nodiscard]] virtual bool is_out_of_reach(int32_t /*peer*/) { return false; }

  /// Rings when there may be something to read, or room to write.
  [[nodiscard]] virtual const Bell& bell() const noexcept = 0;
  /// Is it worth looking a few times before a thread sleeps?
  [[nodiscard]] virtual bool is_quick() const noexcept = 0;

  /// Make all streams. Collective.
  virtual void open_all(os::Deadline deadline) = 0;
  /// In good order, the last call: stay until what was written is with the others, half a second at most.
  virtual void finish() noexcept = 0;
};

}  // namespace ddp::messages
