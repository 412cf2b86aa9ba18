// SPDX-License-Identifier: Apache-2.0
// The queue: the buckets in progress, in the order that all ranks share. The `driver` decides which thread works on them:
//   kCaller:  the threads that mark gradients, a bounded share each time (poke), and the one that ends the pass (drain). No
//             helper thread takes a core from the computation.
//   kProgram: the same, and never a thread of the library: functions that the operations call run on threads of the program.
//   kEnd:     the thread that ends the pass, alone: kProgram where the transport blocks.
//   kThread:  a thread of the group, where a core is free or the transport blocks.
//   kThreadOrEnd: kThread as long as the operations call no function of the program, else kEnd.
// The same operations run in the same order either way, so the bits are the same.
// Cost: push and poke allocate nothing. Threads: push and poke from any thread that holds the pass's launch lock; drain from
// one.
// Tested by unit/exchange/progress_queue_test.cpp and conformance/.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "exchange/transport.hpp"
#include "trace/event.hpp"

namespace ddp::collective {

/// How much of a bucket one poke may do on the caller's thread: large enough to pay for the look, small enough (some 100 us)
/// not to disturb a backward that other work waits for.
inline constexpr int64_t kPokeBytes = 1 << 20;

class ProgressQueue {
 public:
  enum class Driver { kCaller, kProgram, kEnd, kThread, kThreadOrEnd };

  /// At most `capacity` operations are in progress at once. `calls` learns when a caller waits for the thread; may be NULL.
  ProgressQueue(Driver driver, size_t capacity, bootstrap::CallState* calls = nullptr, int32_t channel = 0);
  ~ProgressQueue();
  ProgressQueue(const ProgressQueue&) = delete;
  ProgressQueue& operator=(const ProgressQueue&) = delete;

  [[nodiscard]] Driver driver() const noexcept { return driver_; }

  /// Of kThreadOrEnd, while it is empty: do the operations that come call functions of the program?
  void set_calls_program(bool calls) noexcept;

  /// A started operation. Order is everything. `event`: what a trace records when it is done, or NULL.
  void push(BucketOperation& operation, const trace::Event* event = nullptr);

  /// kCaller and kProgram: work for about `budget_bytes` if the other ranks have come as far and no other thread works on
  /// it; never waits. Errors are kept for drain. False if nothing was done.
  bool poke(int64_t budget_bytes) noexcept;

  /// Until all operations are done; then the queue is empty. Throws the first error.
  void drain();

  /// When the first operation of this pass was pushed, and when the last one was done (kThread) or seen done (else);
  /// nanoseconds.
  [[nodiscard]] int64_t first_start_ns() const noexcept { return times_.first_start_ns; }
  [[nodiscard]] int64_t last_done_ns() const noexcept { return times_.last_done_ns; }
  /// Time that callers spent in poke since this was asked last.
  [[nodiscard]] int64_t take_poked_ns() noexcept { return times_.poked_ns.exchange(0); }

 private:
  [[nodiscard]] bool is_by_thread() const noexcept {
    return driver_ == Driver::kThread ||
           (driver_ == Driver::kThreadOrEnd && !calls_program_.load(std::memory_order_relaxed));
  }
  void run();
  [[nodiscard]] bool advance_all(int64_t budget_bytes);
  void finish_from(size_t first);

  void wait_for_thread();
  void tell_thread_works(bool works) noexcept;
  void set_done(size_t count) noexcept;

  const Driver driver_;
  struct Waits {
    bootstrap::CallState* calls;
    int32_t channel;
  } waits_;                                   // who learns of them
  std::vector<BucketOperation*> operations_;  // in order; the first done_ are done
  std::vector<trace::Event> events_;          // one for each; of no kind: none
  std::atomic<size_t> pushed_{0};
  std::atomic<size_t> done_{0};
  std::optional<Error> error_;  // written by the driver, read after drain has joined it

  std::mutex work_;  // except with kThread: held by the working thread

  std::mutex mutex_;  // kThread: guards stop_ and the wake-ups
  std::condition_variable changed_;
  bool stop_ = false;
  std::atomic<bool> failed_{false};
  std::atomic<bool> calls_program_{false};
  struct Times {
    std::atomic<int64_t> first_start_ns{0};
    std::atomic<int64_t> last_done_ns{0};
    std::atomic<int64_t> poked_ns{0};
  } times_;
  std::thread thread_;
};

}  // namespace ddp::collective
