// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/ucx/engine.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "collective/socket/ucx/log.hpp"
#include "os/thread.hpp"

namespace ddp::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{1};  // how soon the thread sees that nobody drives
constexpr std::chrono::microseconds kPause{50};
constexpr int kRounds = 64;  // of progress after a post
constexpr int kLooks = 8;    // in one wait of the caller; then it asks to be told

}  // namespace

Event::Event() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "no event descriptor");
}

Event::~Event() { ::close(descriptor_); }

void Event::set() const noexcept {
  const uint64_t one = 1;
  (void)!::write(descriptor_, &one, sizeof one);
}

Engine::Engine(int32_t peers, bool one_host)
    : worker_(std::in_place, peers, one_host), thread_(os::start_thread("ddp-ucx", [this] { run(); })) {}

Engine::~Engine() { stop(); }

// Where a peer has died UCX may say for ever that something happens, so nothing is repeated until it says no.
bool Engine::make_progress() noexcept {
  const unsigned happened = worker_->progress();
  moved_ += happened;
  return happened > 0;
}

bool Engine::may_sleep() noexcept {
  const ucs_status_t armed = worker_->arm();
  if (armed != UCS_OK && armed != UCS_ERR_BUSY) trouble_ = armed;
  return armed == UCS_OK;
}

void Engine::settle() noexcept {
  for (int round = 0; round < kRounds; ++round)
    if (!make_progress() && may_sleep()) return;
  (void)ucp_worker_signal(worker_->handle());  // whoever drives goes on
}

bool Engine::drive(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over,
                   std::chrono::milliseconds timeout) noexcept {
  const Clock::time_point end = Clock::now() + timeout;
  driven_ = true;
  ++drives_;
  bool is_over = false;
  for (;;) {
    const bool happened = make_progress();
    is_over = over();
    if (is_over || trouble_ != UCS_OK || (aborted_ && !stopped_)) break;
    const Clock::time_point now = Clock::now();
    if (now >= end) break;
    if (!happened && may_sleep()) sleep(lock, end - now, Watch::kWorker);
  }
  driven_ = false;
  if (sleeps_) settle();  // the worker has to tell the thread of what comes
  if (asleep_) change_.notify_one();
  return is_over;
}

void Engine::sleep(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds limit, Watch watch) const {
  // After stop() there is nothing to be woken for, and the event is still set.
  pollfd watched[] = {{stopped_ ? -1 : wake_.descriptor(), POLLIN, 0},
                      {watch == Watch::kWorker ? worker_->event_descriptor() : -1, POLLIN, 0}};
  const timespec time{static_cast<time_t>(limit.count() / 1'000'000'000), static_cast<long>(limit.count() % 1'000'000'000)};
  lock.unlock();
  (void)::ppoll(watched, 2, &time, nullptr);
  lock.lock();
}

void Engine::run() noexcept {
  const Quiet quiet;
  std::unique_lock lock(mutex_);
  while (!stopped_ && !aborted_ && trouble_ == UCS_OK) {
    if (driven_) {
      stand_aside(lock);
      continue;
    }
    bool is_idle = false;
    for (int round = 0; round < kRounds && !is_idle && trouble_ == UCS_OK; ++round)
      is_idle = !make_progress() && may_sleep();
    if (!is_idle) {
      sleep(lock, kPause, Watch::kNothing);  // a caller may want the lock
      continue;
    }
    sleeps_ = true;
    sleep(lock, std::chrono::hours(1), Watch::kWorker);
    sleeps_ = false;
  }
}

// A caller drives. Most waits are short and many, so being told of each end would cost more than to look.
void Engine::stand_aside(std::unique_lock<std::mutex>& lock) {
  uint64_t seen = drives_;
  for (int looks = 0; driven_ && !stopped_ && looks < kLooks; ++looks) {
    change_.wait_for(lock, kLook);
    if (drives_ != seen) looks = 0;
    seen = drives_;
  }
  asleep_ = true;
  change_.wait(lock, [this] { return !driven_ || stopped_; });
  asleep_ = false;
}

void Engine::abort() noexcept {
  aborted_ = true;
  wake_.set();
}

void Engine::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  change_.notify_one();
  wake_.set();
  thread_.join();
}

}  // namespace ddp::ucx
