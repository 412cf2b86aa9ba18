// Waiting for other ranks of the host: look for a short while, then sleep on a futex in the own page until a counter of somebody
// changes. The library does not own the cores: how long a rank looks before it sleeps depends on whether there are cores enough.
// A sleeper says so (Page::sleeping) before its last look, and a publisher looks for sleepers after its store; both orders are sequentially
// consistent, so no wake-up is lost.
// Threads: one waits; wake() from any.
// Tested by ranks/collectives_test.cpp and process/pass_test.cpp.
#pragma once

#include <functional>
#include <string>

#include "comm/shm/mesh.hpp"

namespace ddp::shm {

class Waiter {
 public:
  Waiter(const Mesh& mesh, const TransportContext& context);

  /// Publish an own counter and wake whoever sleeps.
  void publish(std::atomic<uint64_t>& counter, uint64_t value) const noexcept;

  /// Until `ready()`. Looks at the counters before it looks at the failure, so what is complete completes.
  /// Throws the first cause, or TIMED_OUT with `missing()` when no rank made progress for `patience` times options.timeout_ms.
  template <class Ready, class Missing>
  void wait(Ready&& ready, Missing&& missing, int32_t patience = 1) const {
    for (int32_t round = 0; round < spin_rounds_; ++round) {
      if (ready()) return;
      relax();
      if ((round & 63) == 63 && failure_->broken()) break;
    }
    sleep_until([&] { return ready(); }, [&] { return missing(); }, timeout_ms_ * patience);
  }

  /// End a sleep here, so that the failure is seen.
  void wake() const noexcept;

 private:
  static void relax() noexcept;
  void sleep_until(const std::function<bool()>& ready, const std::function<std::string()>& missing, int64_t patience_ms) const;
  [[nodiscard]] uint64_t progress_of_all() const noexcept;

  const Mesh* mesh_;
  Failure* failure_;
  int64_t timeout_ms_;
  int32_t spin_rounds_;
};

}  // namespace ddp::shm
