// SPDX-License-Identifier: Apache-2.0
#include "os/process.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace ddp::os {
namespace {

using Word = std::atomic<uint64_t>;

constexpr size_t kBytes = 4096;  // the system rounds up to its pages

constinit Word last{0};                      // the greatest number that was given out
constinit Word unwiped{0};                   // where there is no page
constinit std::atomic<Word*> word{nullptr};  // this process's number; 0 in a fork that has not asked yet

/// The kernel empties this page in every fork, however it is made (MADV_WIPEONFORK).
Word* make_page() noexcept {
  const int error = errno;
  Word* made = &unwiped;
  void* const page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED && madvise(page, kBytes, MADV_WIPEONFORK) == 0)
    made = new (page) Word(0);
  else if (page != MAP_FAILED)
    munmap(page, kBytes);
  errno = error;
  return made;
}

/// The same for fork() alone, also where the kernel cannot empty pages.
void forget_number() { word.load()->store(0); }

Word& set_up() noexcept {
  Word* const made = make_page();
  Word* nobody = nullptr;
  if (word.compare_exchange_strong(nobody, made)) {
    (void)pthread_atfork(nullptr, nullptr, forget_number);
    return *made;
  }
  if (made != &unwiped) munmap(static_cast<void*>(made), kBytes);
  return *nobody;
}

}  // namespace

uint64_t process_number() noexcept {
  Word* here = word.load(std::memory_order_acquire);
  if (here == nullptr) here = &set_up();
  uint64_t number = here->load(std::memory_order_acquire);
  if (number != 0) return number;
  const uint64_t mine = last.fetch_add(1) + 1;  // first, so that a fork made meanwhile takes none that is in use
  return here->compare_exchange_strong(number, mine) ? mine : number;
}

}  // namespace ddp::os
