// SPDX-License-Identifier: Apache-2.0
// Who drives a worker of UCX. Nothing happens in UCX unless somebody calls it, and messages also have to move while the
// program computes. Nobody spins: all sleep on the worker's descriptor.
//
// The caller who waits drives the worker itself, so an answer wakes one thread. When nobody waits, a thread of ours does. It
// takes over within a millisecond, and sleeps for as long as nothing happens.
//
// Threads: any; the worker and what its callbacks touch are used under lock(). abort() may be called at any time.
// Tested by process/ucx_test.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "collective/socket/ucx/worker.hpp"

namespace ddp::ucx {

/// What a sleep can be ended with, for good.
class Event {
 public:
  /// Throws std::system_error.
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  void set() const noexcept;

 private:
  int descriptor_;
};

class Engine {
 public:
  Engine(int32_t peers, bool one_host);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // Under the lock:
  [[nodiscard]] Worker& worker() noexcept { return *worker_; }
  /// Do what there is to do, and see that somebody does the rest. After each post.
  void settle() noexcept;
  /// Drive until `over`, an abort, trouble() or the time is up. Lets go of the lock while it sleeps. Says what over() says.
  [[nodiscard]] bool drive(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over,
                           std::chrono::milliseconds timeout) noexcept;
  /// Why the worker cannot be driven any more.
  [[nodiscard]] ucs_status_t trouble() const noexcept { return trouble_; }
  /// Grows while anything happens.
  [[nodiscard]] uint64_t moved() const noexcept { return moved_; }

  /// The thread ends; who drives then is drive() alone. Not under the lock.
  void stop() noexcept;
  /// The worker ends, after stop().
  void end() noexcept { worker_.reset(); }

  /// Ends drive(), now and later, until stop(). Any thread, also after end().
  void abort() noexcept;
  [[nodiscard]] bool is_aborted() const noexcept { return aborted_; }

 private:
  void run() noexcept;
  bool make_progress() noexcept;
  bool may_sleep() noexcept;
  void stand_aside(std::unique_lock<std::mutex>& lock);
  enum class Watch { kWorker, kNothing };  // beside the event
  void sleep(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds limit, Watch watch) const;

  std::mutex mutex_;
  std::optional<Worker> worker_;
  const Event wake_;
  std::atomic<bool> aborted_{false};
  uint64_t moved_ = 0;
  bool driven_ = false;             // a caller drives
  uint64_t drives_ = 0;             // how often one did
  bool sleeps_ = false;             // the thread, on the worker's descriptor
  bool asleep_ = false;             // the thread waits to be told that the caller has stopped
  bool stopped_ = false;            // the thread has to end
  std::condition_variable change_;  // of driven_ and stopped_
  ucs_status_t trouble_ = UCS_OK;
  std::thread thread_;
};

}  // namespace ddp::ucx
