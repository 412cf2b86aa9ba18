// SPDX-License-Identifier: Apache-2.0
#include "group/request.hpp"

#include <algorithm>
#include <chrono>

#include "core/attempt.hpp"
#include "os/clock.hpp"

namespace ddp::group {

namespace {

constexpr int64_t kTurnMs = 20;  // of wait_any: a thread that waits for one message moves others, which end only when tested

}  // namespace

std::shared_ptr<Request> Request::make_ended() {
  auto made = std::make_shared<Request>();
  made->end(std::nullopt);
  return made;
}

void Waker::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void Waker::wait(int64_t ms) {
  std::unique_lock lock(mutex_);
  if (ms < 0)
    changed_.wait(lock, [this] { return woken_; });
  else
    changed_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return woken_; });
  woken_ = false;
}

void Request::add_waker(Waker& waker) {
  const std::lock_guard lock(mutex_);
  wakers_.push_back(&waker);
  if (ended()) waker.wake();
}

void Request::remove_waker(const Waker& waker) noexcept {
  const std::lock_guard lock(mutex_);
  wakers_.erase(std::remove(wakers_.begin(), wakers_.end(), &waker), wakers_.end());
}

void Request::end(const std::optional<Error>& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (ended()) return;
  error_ = error;
  ended_.store(true, std::memory_order_release);
  for (Waker* const waker : wakers_) waker->wake();
}

void Request::release() noexcept {
  static_cast<void>(try_to([this] {
    if (!ended() && !withdraw()) static_cast<void>(wait(kForEver));
  }));
}

Error group_destroyed() noexcept {
  Error made;
  static_cast<void>(try_to([&] { made = Error(DDP_ERROR_INVALID_STATE, "the group was destroyed"); }));
  return made;
}

int32_t wait_any(const std::vector<RequestPtr>& requests, int64_t ms, int32_t* found) {
  struct Woken {
    const std::vector<RequestPtr>& requests;
    Waker waker{};
    explicit Woken(const std::vector<RequestPtr>& all) : requests(all) {}
    ~Woken() {
      for (const RequestPtr& each : requests) each->remove_waker(waker);
    }
    Woken(const Woken&) = delete;
    Woken& operator=(const Woken&) = delete;
  } woken(requests);
  for (const RequestPtr& each : requests) each->add_waker(woken.waker);
  const os::Deadline end = os::Deadline::in_ms(ms);  // 0 is never here: the requests are tested before it is asked
  for (;;) {
    for (size_t at = 0; at < requests.size(); ++at) {
      *found = static_cast<int32_t>(at);
      if (requests[at]->test()) return *found;
    }
    *found = -1;
    if (ms == 0 || end.passed()) return -1;
    woken.waker.wait(end.is_never() ? kTurnMs : std::min(end.left_ms(), kTurnMs));
  }
}

}  // namespace ddp::group
