// SPDX-License-Identifier: Apache-2.0
#include "os/at_exit.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "os/process.hpp"
#include "os/thread.hpp"

namespace ddp::os {
namespace {

constexpr int64_t kLimitMs = 5'000;
constexpr auto kLookAgain = std::chrono::milliseconds(1);

struct Ending {
  PerProcess process;
  std::atomic<void (*)()> what{nullptr};
  std::atomic<pid_t> owner{0};  // a child of vfork() shares this memory
  std::atomic<bool> begun{false};
  std::atomic<bool> gone_on{false};
  std::atomic<int64_t> holders{0};
};

Ending& ending() noexcept {
  static Ending one;  // it has no destructor that does anything
  one.process.enter([] {
    one.what = nullptr;
    one.begun = one.gone_on = false;
    one.holders = 0;
  });
  return one;
}

struct Done {
  std::mutex mutex;  // guards the flag
  std::condition_variable changed;
  bool flag = false;
};

void run_beside(void (*what)(), const Deadline& deadline) {
  auto done = std::make_shared<Done>();
  std::thread runs = start_thread("ddp-exit", [done, what] {
    what();
    {
      const std::lock_guard lock(done->mutex);
      done->flag = true;
    }
    done->changed.notify_all();
  });
  std::unique_lock lock(done->mutex);
  const bool over = done->changed.wait_for(lock, std::chrono::nanoseconds(deadline.left_ns()), [&] { return done->flag; });
  lock.unlock();
  over ? runs.join() : runs.detach();
}

void end() noexcept {
  Ending& all = ending();
  void (*const what)() = all.what.load();
  if (what == nullptr || all.owner.load() != getpid() || all.begun.exchange(true)) return;
  const Deadline deadline = Deadline::in_ms(kLimitMs);
  static_cast<void>(try_to([&] { run_beside(what, deadline); }));
  all.gone_on.store(true);
  while (all.holders.load() != 0 && !deadline.passed()) std::this_thread::sleep_for(kLookAgain);
}

bool hold() noexcept {
  Ending& all = ending();
  all.holders.fetch_add(1);  // first, because end() looks in the other order
  if (!all.gone_on.load()) return true;
  all.holders.fetch_sub(1);
  return false;
}

}  // namespace

void at_exit(void (*what)()) noexcept {
  Ending& all = ending();
  all.owner.store(getpid());
  void (*none)() = nullptr;
  if (all.what.compare_exchange_strong(none, what)) be_first_at_exit();
}

void be_first_at_exit() noexcept {
  if (ending().what.load() != nullptr) static_cast<void>(std::atexit(end));  // without memory it is a death
}

HoldExit::HoldExit() noexcept : held_(hold()) {}
HoldExit::~HoldExit() {
  if (held_) ending().holders.fetch_sub(1);
}

}  // namespace ddp::os
