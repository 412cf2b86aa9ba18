// SPDX-License-Identifier: Apache-2.0
#include "group/request_lane.hpp"

#include <chrono>
#include <optional>
#include <utility>

#include "core/attempt.hpp"
#include "core/float_environment.hpp"
#include "os/clock.hpp"
#include "os/thread.hpp"

namespace ddp::group {
namespace {

using bootstrap::CallState;
using bootstrap::UserCall;

}  // namespace

class RequestLane::Posted final : public Request {
 public:
  Posted(std::shared_ptr<RequestLane> lane, std::function<void()> work) : lane_(std::move(lane)), work_(std::move(work)) {}

  void run() {
    const std::function<void()> work = std::move(work_);  // freed before it has ended
    work();
  }
  using Request::end;

 private:
  [[nodiscard]] bool look() override {
    const std::lock_guard lock(lane_->mutex_);
    if (!ended()) lane_->idle_.hurry();
    return ended();
  }
  [[nodiscard]] bool stay(int64_t ms) override { return lane_->stay(*this, ms); }

  const std::shared_ptr<RequestLane> lane_;
  std::function<void()> work_;
};

RequestLane::~RequestLane() { stop(group_destroyed()); }

RequestPtr RequestLane::post(std::function<void()> work) {
  auto posted = std::make_shared<Posted>(shared_from_this(), std::move(work));
  const std::lock_guard lock(mutex_);
  if (stopped_.has_value()) throw Error(*stopped_);
  if (!thread_.joinable()) thread_ = os::start_thread("ddp-requests", [this] { run(); });
  queue_.push_back(posted);
  calls_.set_queue_works(channel_, true);
  idle_.notify();
  return posted;
}

bool RequestLane::is_idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

bool RequestLane::stay(Posted& request, int64_t ms) {
  std::optional<CallState::In> inside;  // with a limit this rank continues by itself, so it does not count as waiting
  if (ms < 0) inside.emplace(calls_, UserCall::kRequestWait);
  const os::Deadline end = os::Deadline::in_ms(ms);
  Lock lock(mutex_);
  while (!request.ended()) {
    if (ms < 0 && !is_driven_) {
      drive(lock);
      continue;
    }
    if (!is_driven_) idle_.hurry();
    std::optional<CallState::WaitingForQueue> waiting;
    if (ms < 0) waiting.emplace(calls_, channel_);
    if (ms == 0 || end.passed()) return request.ended();
    if (end.is_never())
      changed_.wait(lock);
    else
      changed_.wait_for(lock, std::chrono::nanoseconds(end.left_ns()));
  }
  return true;
}

// No function of the program is called here, so only the end of the thread from outside (pthread_cancel) unwinds without an
// error.
void RequestLane::drive(Lock& lock) {
  is_driven_ = true;
  const PostedPtr first = queue_.front();
  lock.unlock();
  struct Unwound {
    RequestLane* lane;
    ~Unwound() {
      if (lane == nullptr) return;
      const std::lock_guard lost(lane->mutex_);
      lane->pop(Error(DDP_ERROR_INTERNAL, "the thread that worked on the request was ended (pthread_cancel)"));
    }
  } unwound{this};
  const std::optional<Error> error = try_to([&] { first->run(); });
  unwound.lane = nullptr;
  lock.lock();
  pop(error);
}

void RequestLane::pop(const std::optional<Error>& error) noexcept {
  queue_.front()->end(error);
  queue_.pop_front();
  is_driven_ = false;
  if (queue_.empty()) {
    calls_.set_queue_works(channel_, false);
    idle_.calm_down();
  } else {
    idle_.notify();
  }
  changed_.notify_all();
}

void RequestLane::run() {
  const StandardFloats floats;
  Lock lock(mutex_);
  while (!stopped_.has_value()) {
    const Posted* const first = queue_.empty() || is_driven_ ? nullptr : queue_.front().get();
    if (first != nullptr && (begin_ == Begin::kAtOnce || idle_.is_hurried() || first == seen_)) {
      idle_.found();
      drive(lock);
      continue;
    }
    if (first != nullptr) idle_.found();
    seen_ = first;
    idle_.sleep(lock, begin_ == Begin::kLater);
  }
}

void RequestLane::stop(const Error& cause) noexcept {
  {
    Lock lock(mutex_);
    if (!stopped_.has_value()) stopped_ = cause;
    idle_.wake();
    changed_.wait(lock, [this] { return !is_driven_; });
    while (!queue_.empty()) pop(cause);
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace ddp::group
