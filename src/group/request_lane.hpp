// SPDX-License-Identifier: Apache-2.0
// The collectives that a rank has posted, in their order, which is the same on all ranks; and who works on them. Each is the
// blocking call's own code over a channel of its own, so it runs on one thread from its begin to its end:
//   a thread of the library, at once, over transports that wait in sockets;
//   the thread that waits for one, or for a later one, over shared memory. What no thread waits for within about a
//   millisecond, or what was tested, is taken by a thread of the library there too.
// Either way one at a time, in order, so the bits are the same.
// Cost, where a thread posts and waits at once: no change of threads and no system call.
// Threads: post(), test and wait from any.
// Tested by unit/group/request_lane_test.cpp and conformance/requests_test.cpp.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "control/call_state.hpp"
#include "group/idle_wait.hpp"
#include "group/request.hpp"

namespace ddp::group {

class RequestLane : public std::enable_shared_from_this<RequestLane> {
 public:
  enum class Begin { kAtOnce, kLater };

  /// `calls` lives until stop() has returned.
  RequestLane(bootstrap::CallState& calls, Begin begin, int32_t channel = bootstrap::kRequestChannel)
      : calls_(calls), begin_(begin), channel_(channel) {}
  ~RequestLane();
  RequestLane(const RequestLane&) = delete;
  RequestLane& operator=(const RequestLane&) = delete;

  /// `work` runs when everything that was posted before has ended; an exception from it is the request's error.
  [[nodiscard]] RequestPtr post(std::function<void()> work);
  /// Has everything ended?
  [[nodiscard]] bool is_idle();
  /// What has not begun ends with this error; returns when what has begun has ended. The last call.
  void stop(const Error& cause) noexcept;

 private:
  class Posted;
  using PostedPtr = std::shared_ptr<Posted>;
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] bool stay(Posted& request, int64_t ms);
  void drive(Lock& lock);
  void pop(const std::optional<Error>& error) noexcept;
  void run();

  bootstrap::CallState& calls_;
  const Begin begin_;
  const int32_t channel_;
  std::mutex mutex_;                 // guards what follows; not held while one runs
  std::condition_variable changed_;  // one has ended, or a thread has stopped working
  std::deque<PostedPtr> queue_;      // the first one runs, if is_driven_
  bool is_driven_ = false;
  std::optional<Error> stopped_;
  IdleWait idle_;                 // of the thread; hurried: a thread of the program needs it now
  const Posted* seen_ = nullptr;  // by the thread, the first one at its last look
  std::thread thread_;
};

}  // namespace ddp::group
