// SPDX-License-Identifier: Apache-2.0
// Waiting for other ranks of the host: poll for a short while, yield this core and poll again, then sleep on a futex in the
// own page until a counter of another rank changes. The library does not own the cores: how long a rank looks before it
// sleeps depends on whether there are cores enough. A sleeper announces it (Page::sleeping) before its last look, and a
// publisher looks for sleepers after its store; both orders are sequentially consistent, so no wake-up is lost. Threads: one
// waits; wake() from any. Tested by unit/exchange/waiter_test.cpp, conformance/collectives_test.cpp and
// conformance/pass_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bootstrap/failure.hpp"
#include "os/clock.hpp"
#include "shm/mesh.hpp"

namespace ddp::shm {

/// The kind of rank that a wait is for. A rail's rank waits for other hosts itself. Ranks that wait for it give it twice the
/// time, so that the late rank is named by those that wait for it directly; and a rank that left in good order does not end
/// the wait: all ranks of this host take part, and another host may be through already.
enum class Behind { kNobody, kARail };

class Waiter {
 public:
  Waiter(const Mesh& mesh, const collective::TransportContext& context);

  /// Publish an own counter and wake sleeping ranks.
  void publish(std::atomic<uint64_t>& counter, uint64_t value) const noexcept;

  /// Until `ready()`. Looks at the counters before it looks at the failure, so what is complete completes.
  /// Throws the first cause, or `missing()`, a TIMED_OUT, when no rank made progress for options.timeout_ms, or for twice
  /// that behind a rail.
  /// `collective`: its number, which the others learn if this rank comes to sleep.
  /// Returns since when it waited; 0: it was ready after a few looks.
  template <class Ready, class Missing>
  int64_t wait(Ready&& ready, Missing&& missing, Behind behind = Behind::kNobody, uint64_t collective = 0) const {
    for (int32_t look = 0; look < patience_.looks; ++look) {
      if (ready()) return 0;
      relax();
    }
    const int64_t begin = os::now_ns();
    const int64_t turns_end = begin + kLongestTurnsNs;
    for (int32_t turn = 0; turn < patience_.turns && os::now_ns() < turns_end && !is_over(behind); ++turn) {
      give_way();
      for (int32_t look = 0; look < patience_.looks_a_turn; ++look) {
        if (ready()) return begin;
        relax();
      }
    }
    sleep_until([&] { return ready(); }, [&] { return missing(); }, behind, collective);
    return begin;
  }

  /// End a sleep here, so that the failure is seen.
  void wake() const noexcept;

 private:
  // A turn is over in microseconds, unless the core goes to a program that keeps it for milliseconds. Then sleeping is
  // better: a sleeper that is woken gets its core back at once, and its deadline runs.
  static constexpr int64_t kLongestTurnsNs = 2'000'000;
  /// How long to poll before sleeping: `looks` without a pause, then `turns` times a yield and some looks, but not for
  /// longer than kLongestTurnsNs.
  struct Patience {
    int32_t looks;
    int32_t turns;
    int32_t looks_a_turn;
  };
  [[nodiscard]] static Patience choose_patience(int32_t ranks) noexcept;
  static void relax() noexcept;
  static void give_way() noexcept;
  void sleep_until(const std::function<bool()>& ready, const std::function<Error()>& missing, Behind behind,
                   uint64_t collective) const;
  /// Has a cause come that ends such a wait?
  [[nodiscard]] bool is_over(Behind behind) const noexcept {
    return behind == Behind::kARail ? failure_->woken() : failure_->broken();
  }
  [[nodiscard]] uint64_t progress_of_all() const noexcept;

  const Mesh* mesh_;
  bootstrap::Failure* failure_;
  bootstrap::CallState* calls_;
  int64_t timeout_ms_;
  int32_t channel_;
  Patience patience_;
};

}  // namespace ddp::shm
