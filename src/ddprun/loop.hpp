// SPDX-License-Identifier: Apache-2.0
// Waits for descriptors, with Asio. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ddp::ddprun {

/// Whole milliseconds, one more than that, so that the time has passed.
[[nodiscard]] constexpr int64_t to_ms(double seconds) { return static_cast<int64_t>(seconds * 1e3) + 1; }

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Until a descriptor that is waited for is ready, at most so long; calls the handlers of all that are ready.
  void wait(int64_t most_ms);

 private:
  friend class Ready;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A descriptor, and what to do when it is ready. It ends before the descriptor is closed, and before its loop.
class Ready {
 public:
  enum class For { kReading, kWriting, kEnd };  // kEnd: nobody reads what is written
  /// kOurs: we have opened it, and it does not block. kShared: it keeps its flags, because another process may have it too,
  /// such as the shell that has started us.
  enum class Whose { kOurs, kShared };

  Ready(Loop& loop, int fd, Whose whose, For what, std::function<void()> handler);
  ~Ready();
  Ready(const Ready&) = delete;
  Ready& operator=(const Ready&) = delete;

  /// Loop::wait() waits for it, and calls the handler once. Nothing happens if it is waited for already. What cannot be
  /// waited for, such as a file, is always ready.
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::ddprun
