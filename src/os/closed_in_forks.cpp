// SPDX-License-Identifier: Apache-2.0
#include "os/closed_in_forks.hpp"

#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "os/process.hpp"

namespace ddp::os {

/// All that live in this process. Never destroyed.
struct ForkList {
  PerProcess process;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards the list
  ClosedInForks* first = nullptr;
  bool is_watching = false;

  static ForkList& all() noexcept;
  static void before_fork() { pthread_mutex_lock(&all().mutex); }
  static void after_fork() { pthread_mutex_unlock(&all().mutex); }
  static void in_the_fork();
};

namespace {

constinit ForkList list;

}  // namespace

ForkList& ForkList::all() noexcept {
  list.process.enter([] {
    list.mutex = PTHREAD_MUTEX_INITIALIZER;
    list.first = nullptr;
  });
  return list;
}

/// Before the list is used there.
void ForkList::in_the_fork() {
  for (const ClosedInForks* each = list.first; each != nullptr; each = each->after_) ::close(each->fd_);
  static_cast<void>(all());
}

ClosedInForks::ClosedInForks(int fd) noexcept : fd_(fd) {
  ForkList& all = ForkList::all();
  pthread_mutex_lock(&all.mutex);
  const bool begins = !std::exchange(all.is_watching, true);
  after_ = all.first;
  if (after_ != nullptr) after_->before_ = this;
  all.first = this;
  pthread_mutex_unlock(&all.mutex);
  if (begins) (void)pthread_atfork(ForkList::before_fork, ForkList::after_fork, ForkList::in_the_fork);
}

void ClosedInForks::forget() noexcept {
  if (fd_ < 0) return;
  ForkList& all = ForkList::all();
  pthread_mutex_lock(&all.mutex);
  (before_ != nullptr ? before_->after_ : all.first) = after_;
  if (after_ != nullptr) after_->before_ = before_;
  fd_ = -1;
  pthread_mutex_unlock(&all.mutex);
}

}  // namespace ddp::os
