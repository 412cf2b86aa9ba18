// SPDX-License-Identifier: Apache-2.0
#include "support/host_cuda/threads.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ddp::test::host_cuda {
namespace {

constexpr size_t kStack = size_t{256} * 1024;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kWarp = 32;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "host_cuda: %s\n", what);
  std::abort();
}

/// Threads that wait for each other.
struct Meeting {
  unsigned members = 0;
  unsigned arrived = 0;
  unsigned generation = 0;
};

struct Fiber {
  ucontext_t context{};
  bool done = true;
  void* tsan = nullptr;
};

class Block {
 public:
  Block() {
    stacks_ = static_cast<char*>(mmap(nullptr, kStack * kMostThreads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks_ == MAP_FAILED) give_up("no memory for stacks");
    fibers_.resize(kMostThreads);
  }

  void run(unsigned threads, bool descending, void (*body)(void*), void* what);
  void meet(Meeting& meeting) {
    const unsigned generation = meeting.generation;
    if (++meeting.arrived == meeting.members) {
      release(meeting);
    } else {
      while (meeting.generation == generation) give_way();
    }
  }
  void meet_all() { meet(all_); }
  uint64_t exchange(uint64_t mine, unsigned distance) {
    const unsigned warp = current_ / kWarp;
    const unsigned lane = current_ % kWarp;
    if (warps_[warp].members != kWarp) give_up("an exchange without the whole warp");
    given_[current_] = mine;
    meet(warps_[warp]);
    const uint64_t got = lane + distance < kWarp ? given_[current_ + distance] : mine;
    meet(warps_[warp]);
    return got;
  }

  unsigned current_ = 0;
  unsigned block_ = 0;
  unsigned blocks_ = 0;

 private:
  void release(Meeting& meeting) {
    meeting.arrived = 0;
    ++meeting.generation;
    progress_ = true;
  }
  void leave(Meeting& meeting) {
    --meeting.members;
    if (meeting.members > 0 && meeting.arrived == meeting.members) release(meeting);
  }
  static void enter();
  void resume(unsigned thread);
  void give_way();
  void make_ready(unsigned t);

  std::vector<Fiber> fibers_;
  ucontext_t scheduler_{};
  void* scheduler_tsan_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_size_ = 0;
  char* stacks_ = nullptr;
  Meeting all_;
  Meeting warps_[kMostThreads / kWarp];
  uint64_t given_[kMostThreads] = {};
  void (*body_)(void*) = nullptr;
  void* what_ = nullptr;
  bool progress_ = false;
};

Block& the_block() {
  static Block* const one = new Block;
  return *one;
}

void Block::enter() {
  Block& self = the_block();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self.scheduler_stack_, &self.scheduler_stack_size_);
#endif
  self.body_(self.what_);
  self.fibers_[self.current_].done = true;
  self.progress_ = true;
  self.leave(self.warps_[self.current_ / kWarp]);
  self.leave(self.all_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, self.scheduler_stack_, self.scheduler_stack_size_);  // this stack is done with
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(self.scheduler_tsan_, 0);
#endif
  setcontext(&self.scheduler_);
}

void Block::resume(unsigned thread) {
  current_ = thread;
  Fiber& fiber = fibers_[thread];
#if defined(__SANITIZE_ADDRESS__)
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, stacks_ + thread * kStack, kStack);
#endif
#if defined(__SANITIZE_THREAD__)
  scheduler_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.tsan, 0);
#endif
  swapcontext(&scheduler_, &fiber.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
}

void Block::give_way() {
  Fiber& fiber = fibers_[current_];
#if defined(__SANITIZE_ADDRESS__)
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, scheduler_stack_, scheduler_stack_size_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(scheduler_tsan_, 0);
#endif
  swapcontext(&fiber.context, &scheduler_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(mine, &scheduler_stack_, &scheduler_stack_size_);
#endif
}

/// A function of its own: getcontext returns twice for all that the compiler knows, and then a loop around it may lose its variable.
[[gnu::noinline]] void Block::make_ready(unsigned t) {
  Fiber& fiber = fibers_[t];
  fiber.done = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stacks_ + t * kStack;
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter, 0);
#if defined(__SANITIZE_THREAD__)
  if (fiber.tsan == nullptr) fiber.tsan = __tsan_create_fiber(0);
#endif
}

void Block::run(unsigned threads, bool descending, void (*body)(void*), void* what) {
  body_ = body;
  what_ = what;
  all_ = {threads, 0, 0};
  for (unsigned first = 0; first < threads; first += kWarp) warps_[first / kWarp] = {threads - first < kWarp ? threads - first : kWarp, 0, 0};
  for (unsigned t = 0; t < threads; ++t) make_ready(t);
  while (all_.members > 0) {
    progress_ = false;
    for (unsigned k = 0; k < threads; ++k) {
      const unsigned t = descending ? threads - 1 - k : k;
      if (!fibers_[t].done) resume(t);
    }
    if (!progress_) give_up("threads wait for others that do not come");
  }
}

}  // namespace

Index here() noexcept { return {the_block().current_}; }
Index block() noexcept { return {the_block().block_}; }
Index grid() noexcept { return {the_block().blocks_}; }
void wait_for_block() { the_block().meet_all(); }
uint64_t from_lane_below(uint64_t mine, unsigned distance) { return the_block().exchange(mine, distance); }

void run(unsigned blocks, unsigned threads, void (*body)(void*), void* what) {
  if (threads > kMostThreads) give_up("a block has too many threads");
  Block& one = the_block();
  one.blocks_ = blocks;
  for (unsigned b = 0; b < blocks; ++b) {
    one.block_ = b;
    one.run(threads, b % 2 == 1, body, what);
  }
}

}  // namespace ddp::test::host_cuda
