// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/free_guard.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <thread>
#include <utility>

#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"

namespace ddp::gpu {
namespace {

constexpr int64_t kAgainMs = 5;  // for a device that was not idle in time when it was waited for last
constexpr auto kLook = std::chrono::milliseconds(10);

/// What is left behind.
struct Wait {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool is_over = false;
  bool is_idle = false;
};

/// A lost device does nothing any more.
bool is_done(const ddp_gpu_table& table) noexcept {
  const int32_t code = table.synchronize();
  return code == 0 || table.error_kind(code) != DDP_GPU_CAPTURE;
}

}  // namespace

void FreeGuard::ask(std::function<bool()> ends) {
  const std::lock_guard lock(mutex_);
  ends_ = std::move(ends);
}

void FreeGuard::ask_last(const std::function<bool()>& ends, const std::string& device, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  ends_ = nullptr;
  hangs_ = !ends();
  tell(std::exchange(stuck_, hangs_), device, owner);
}

bool FreeGuard::may_free(const std::string& device, const std::string& owner) noexcept {
  const std::lock_guard lock(mutex_);
  const bool was_stuck = stuck_;
  if (ends_) hangs_ = !ends_();
  stuck_ = hangs_ || !becomes_idle(was_stuck);
  tell(was_stuck, device, owner);
  return !stuck_;
}

void FreeGuard::tell(bool was_stuck, const std::string& device, const std::string& owner) const noexcept {
  if (stuck_ && !was_stuck)
    os::log(DDP_LOG_WARNING, "%s works on something that does not end; what %s has in its memory is left to the process",
            device.c_str(), owner.c_str());
}

bool FreeGuard::becomes_idle(bool was_stuck) const noexcept {
  std::shared_ptr<Wait> wait;
  std::thread waits;
  const auto start = [&] {
    wait = std::make_shared<Wait>();
    waits = os::start_thread("ddp-gpu-idle", [wait, &table = table_, index = index_] {
      static_cast<void>(table.relax_capture());
      static_cast<void>(table.set_device(index));
      const bool is_idle = is_done(table);
      const std::lock_guard lock(wait->mutex);
      wait->is_over = true;
      wait->is_idle = is_idle;
      wait->changed.notify_all();
    });
  };
  if (try_to(start)) return is_done(table_);  // no thread is left for it
  std::unique_lock lock(wait->mutex);
  const int64_t begin = os::now_ns();
  const auto is_late = [&] { return (os::now_ns() - begin) / 1'000'000 >= (was_stuck ? kAgainMs : limit_ms_.load()); };
  while (!wait->is_over && !is_late()) wait->changed.wait_for(lock, kLook, [&] { return wait->is_over; });
  const bool is_over = wait->is_over;
  const bool is_idle = wait->is_idle;
  lock.unlock();
  is_over ? waits.join() : waits.detach();
  return is_idle;
}

}  // namespace ddp::gpu
