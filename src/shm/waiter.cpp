// SPDX-License-Identifier: Apache-2.0
#include "shm/waiter.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "os/awake_clock.hpp"
#include "os/clock.hpp"
#include "os/cores.hpp"

namespace ddp::shm {
namespace {

constexpr int64_t kLookAgainMs = 200;  // a bound for what no wake-up covers: clocks, deadlines

constexpr int64_t kForEverMs = INT64_MAX / 4'000'000;

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t ms) noexcept {
  timespec time{ms / 1000, ms % 1000 * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Waiter::Waiter(const Mesh& mesh, const collective::TransportContext& context)
    : mesh_(&mesh),
      failure_(context.failure),
      calls_(&context.control->calls()),
      timeout_ms_(context.options.timeout_ms),
      channel_(context.channel),
      patience_(choose_patience(mesh.size)) {}

// A core for every rank: some 4 us of looking, as a barrier takes well under 1 us, then up to half a millisecond of looking
// between turns. A rank that is late often waits for this very core, when other programs run and two ranks share one;
// without the turns both then wait until the other sleeps, call after call (measured on a busy machine, 4 ranks in place: 1
// KiB 7 instead of 80 us, 1 MiB 40 instead of 200; 7 and 40 become 19 and 65 with 20 us of looking).
// Fewer cores: the peer needs the core that looking would hold, so every look is a turn. Sleeping at once costs a wake-up
// per wait: 8 ranks on 4 cores took 37 us for 1 KiB with 4 turns and take 6 with 256.
Waiter::Patience Waiter::choose_patience(int32_t ranks) noexcept {
  return ranks <= os::usable_cores() ? Patience{100, 200, 64} : Patience{1, 256, 1};
}

void Waiter::give_way() noexcept { sched_yield(); }

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
    Page& page = mesh_->first_page(peer);
    if (peer == mesh_->rank || page.sleeping.load() == 0) continue;
    page.bell.fetch_add(1);
    futex_wake(page.bell);
  }
}

void Waiter::wake() const noexcept {
  Page& page = mesh_->first_page(mesh_->rank);
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

void Waiter::sleep_until(const std::function<bool()>& ready, const std::function<Error()>& missing, Behind behind,
                         uint64_t collective) const {
  const bootstrap::CallState::Waiting waiting(*calls_, bootstrap::BlockedCall::Exchange::kCollective, collective, channel_);
  Page& own = mesh_->first_page(mesh_->rank);
  uint64_t progress = progress_of_all();
  os::AwakeClock clock;  // the others may have been stopped with this process
  clock.set_most_ms(2 * kLookAgainMs);
  const int64_t patience_ms = timeout_ms_ * (behind == Behind::kARail ? 2 : 1);
  const int64_t patience_ns =
      patience_ms > 0 ? std::min<int64_t>(patience_ms, kForEverMs) * 1'000'000 : kForEverMs * 1'000'000;
  int64_t until_ns = clock.at(os::now_ns()) + patience_ns;
  for (;;) {
    const uint32_t bell = own.bell.load();
    own.sleeping.fetch_add(1);
    const bool done = ready();
    const int64_t left_ms = (until_ns - clock.at(os::now_ns())) / 1'000'000;
    if (!done && !is_over(behind)) futex_wait(own.bell, bell, std::clamp<int64_t>(left_ms, 1, kLookAgainMs));
    own.sleeping.fetch_sub(1);
    if (done || ready()) return;
    if (is_over(behind)) failure_->check();
    clock.tick(os::now_ns());
    const uint64_t now = progress_of_all();
    if (now != progress) {
      progress = now;
      until_ns = clock.at(os::now_ns()) + patience_ns;
    } else if (clock.at(os::now_ns()) >= until_ns) {
      throw Error(missing());
    }
  }
}

}  // namespace ddp::shm
