// SPDX-License-Identifier: Apache-2.0
// Memory that the test and all ranks of a round share: the steps of the ranks, and the moment at which one of them is to die
// by itself. Ids are those of tests/support/survivor.hpp: the rank that a process had when it came, new ones for those that
// come later.
#pragma once

#include <new>

#include "chaos/plan.hpp"

namespace ddp::test {

constexpr int kMostIds = 64;
constexpr size_t kMostSteps = 100'000;

struct Board {
  /// A rank sends itself a signal, some time after it has entered a state for the next time.
  struct Order {
    std::atomic<bool> given{false};
    State state = State::kPass;
    int signal = SIGKILL;
    int64_t after_us = 0;
  };
  struct Rank {
    std::atomic<int64_t> step{0};
    std::atomic<uint64_t> members{0};
    std::atomic<int64_t> heap_bytes{0};  // where it is measured
    std::atomic<bool> silenced{false};   // it is stopped or cut off, and the others go on without it
    Order order;
  };
  std::array<Rank, kMostIds> ranks;
  std::array<std::atomic<uint64_t>, kMostSteps> members_of_step{};  // who made it; a step that is repeated is written again
  SurvivorEnding ending;

  Rank& of(int id) { return ranks.at(static_cast<size_t>(id)); }

  void give(const Blow& blow, int id) {
    Order& order = of(id).order;
    order.state = *blow.in;
    order.signal = blow.signal();
    order.after_us = blow.after_us;
    order.given = true;
  }

  /// In the rank's process.
  void obey(int id, State entered) {
    Order& order = of(id).order;
    if (!order.given || order.state != entered || !order.given.exchange(false)) return;
    std::thread([&order] {
      std::this_thread::sleep_for(std::chrono::microseconds(order.after_us));
      ::kill(::getpid(), order.signal);
    }).detach();
  }

  /// A rank that wakes may end a step that the others have repeated without it.
  void note_step(int id, int64_t step, uint64_t members) {
    Rank& rank = of(id);
    if (!rank.silenced && static_cast<size_t>(step) < kMostSteps)
      members_of_step.at(static_cast<size_t>(step) - 1) = members;
    rank.members = members;
    rank.step = step;
  }
};

/// Zeroed memory that children share.
class SharedBoard : NotCopied {
 public:
  SharedBoard() : page_(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (page_ == MAP_FAILED) throw std::runtime_error("no shared memory");
    new (page_) Board;
  }
  ~SharedBoard() { munmap(page_, sizeof(Board)); }
  Board* operator->() const noexcept { return static_cast<Board*>(page_); }

 private:
  void* page_;
};

}  // namespace ddp::test
