#include "comm/shm/waiter.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/cores.hpp"

namespace ddp::shm {
namespace {

// About 100 us of looking when every rank has a core (measured: a barrier then takes well under 1 us and a late peer seldom
// costs a wake-up); none when ranks share cores, because the peer needs the core that looking would hold.
constexpr int32_t kSpinRounds = 2500;
constexpr int64_t kLookAgainMs = 200;  // a bound for what no wake-up covers: clocks, deadlines

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t ms) noexcept {
  timespec time{ms / 1000, ms % 1000 * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Waiter::Waiter(const Mesh& mesh, const TransportContext& context)
    : mesh_(&mesh),
      failure_(context.failure),
      timeout_ms_(context.options.timeout_ms),
      spin_rounds_(mesh.size <= usable_cores() ? kSpinRounds : 0) {}

void Waiter::relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Waiter::publish(std::atomic<uint64_t>& counter, uint64_t value) const noexcept {
  counter.store(value);
  for (int32_t peer = 0; peer < mesh_->size; ++peer) {
    Page& page = mesh_->page(peer);
    if (peer == mesh_->rank || page.sleeping.load() == 0) continue;
    page.bell.fetch_add(1);
    futex_wake(page.bell);
  }
}

void Waiter::wake() const noexcept {
  Page& page = mesh_->own_page();
  page.bell.fetch_add(1);
  futex_wake(page.bell);
}

uint64_t Waiter::progress_of_all() const noexcept {
  uint64_t sum = 0;
  for (int32_t peer = 0; peer < mesh_->size; ++peer) {
    const Page& page = mesh_->page(peer);
    sum += page.announced + page.finished + page.filled + page.reduced + page.taken;
  }
  return sum;
}

void Waiter::sleep_until(const std::function<bool()>& ready, const std::function<std::string()>& missing,
                         int64_t patience_ms) const {
  Page& own = mesh_->own_page();
  for (int32_t i = 0; i < 4 && spin_rounds_ == 0; ++i) {  // somebody else may need just this core
    if (ready()) return;
    sched_yield();
  }
  uint64_t progress = progress_of_all();
  Deadline deadline = Deadline::in_ms(patience_ms);
  for (;;) {
    const uint32_t bell = own.bell.load();
    own.sleeping.store(1);
    const bool done = ready();
    if (!done && !failure_->broken()) futex_wait(own.bell, bell, std::min(kLookAgainMs, std::max<int64_t>(1, deadline.left_ms())));
    own.sleeping.store(0);
    if (done || ready()) return;
    failure_->check();
    const uint64_t now = progress_of_all();
    if (now != progress) {
      progress = now;
      deadline = Deadline::in_ms(patience_ms);
    } else if (deadline.passed()) {
      throw Error(DDP_ERROR_TIMED_OUT, missing());
    }
  }
}

}  // namespace ddp::shm
