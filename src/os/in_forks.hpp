// SPDX-License-Identifier: Apache-2.0
// Objects of one kind that a fork() treats in the child, before anything else is done with them there.
// Cost: a lock to note and to forget; fork() waits for it.
// Threads: any.
// Tested by unit/os/closed_in_forks_test.cpp and unit/os/file_window_test.cpp.
#pragma once

#include <pthread.h>

#include <utility>

#include "os/process.hpp"

namespace ddp::os {

/// A Member is noted from note() to forget(). In the child Member::in_the_fork(first) is called with the list of all that
/// are noted (next()), which is empty afterwards. A child that is made by other means (_Fork, clone) calls nothing.
template <class Member>
class InForks {
 public:
  InForks(const InForks&) = delete;
  InForks& operator=(const InForks&) = delete;

  [[nodiscard]] const Member* next() const noexcept { return after_; }

 protected:
  InForks() = default;
  ~InForks() = default;

  /// While it lives, no fork() happens.
  class NoFork {
   public:
    NoFork() noexcept { before_fork(); }
    ~NoFork() { after_fork(); }
    NoFork(const NoFork&) = delete;
    NoFork& operator=(const NoFork&) = delete;
  };

  /// When the member is complete.
  void note(Member& self) noexcept {
    All& list = all();
    pthread_mutex_lock(&list.mutex);
    const bool begins = !std::exchange(list.is_watching, true);
    after_ = list.first;
    if (after_ != nullptr) after_->before_ = &self;
    list.first = &self;
    pthread_mutex_unlock(&list.mutex);
    if (begins) (void)pthread_atfork(before_fork, after_fork, in_child);
  }
  /// Once, by the process that noted it or by a fork of it.
  void forget(const Member& self) noexcept {
    All& list = all();
    pthread_mutex_lock(&list.mutex);
    if (before_ != nullptr)
      before_->after_ = after_;
    else if (list.first == &self)
      list.first = after_;
    if (after_ != nullptr) after_->before_ = before_;
    pthread_mutex_unlock(&list.mutex);
  }

 private:
  /// All that live in this process; it is never destroyed.
  struct All {
    PerProcess process;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards the list
    Member* first = nullptr;
    bool is_watching = false;
  };
  static inline constinit All all_;

  static All& all() noexcept {
    all_.process.enter([] {
      all_.mutex = PTHREAD_MUTEX_INITIALIZER;
      all_.first = nullptr;
    });
    return all_;
  }
  static void before_fork() { pthread_mutex_lock(&all().mutex); }
  static void after_fork() { pthread_mutex_unlock(&all().mutex); }
  static void in_child() {
    Member::in_the_fork(all_.first);
    pthread_mutex_unlock(&all_.mutex);  // the thread sanitizer would count it as held
    static_cast<void>(all());
  }

  Member* before_ = nullptr;
  Member* after_ = nullptr;
};

}  // namespace ddp::os
