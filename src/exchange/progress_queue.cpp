// SPDX-License-Identifier: Apache-2.0
#include "exchange/progress_queue.hpp"

#include "core/attempt.hpp"
#include "core/float_environment.hpp"
#include "os/clock.hpp"
#include "os/thread.hpp"
#include "trace/watch.hpp"

namespace ddp::collective {
namespace {

Error thread_is_lost() {
  return Error(DDP_ERROR_CALLBACK,
               "a function of the program (a hook or an update) has ended the library's thread that called it "
               "(pthread_exit or pthread_cancel); it must return");
}

}  // namespace

ProgressQueue::ProgressQueue(Driver driver, size_t capacity, bootstrap::CallState* calls, int32_t channel)
    : driver_(driver), waits_{calls, channel}, operations_(capacity, nullptr), events_(capacity) {
  if (driver != Driver::kThread && driver != Driver::kThreadOrEnd) return;
  thread_ = os::start_thread("ddp-progress", [this] { run(); });
}

ProgressQueue::~ProgressQueue() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ProgressQueue::push(BucketOperation& operation, const trace::Event* event) {
  const size_t at = pushed_.load(std::memory_order_relaxed);
  operations_[at] = &operation;
  events_[at] = event != nullptr ? *event : trace::Event();
  if (at == 0) times_.first_start_ns.store(os::now_ns(), std::memory_order_relaxed);
  if (!is_by_thread()) {
    pushed_.store(at + 1, std::memory_order_release);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    tell_thread_works(true);
    pushed_.store(at + 1, std::memory_order_release);
  }
  changed_.notify_all();
}

void ProgressQueue::set_calls_program(bool calls) noexcept {
  const std::lock_guard lock(mutex_);
  calls_program_.store(calls, std::memory_order_relaxed);
}

void ProgressQueue::tell_thread_works(bool works) noexcept {
  if (waits_.calls != nullptr) waits_.calls->set_queue_works(waits_.channel, works);
}

/// The number that is done: one more than before.
void ProgressQueue::set_done(size_t count) noexcept {
  if (events_[count - 1].kind != trace::EventKind::kNone) waits_.calls->watch()->record_end(events_[count - 1]);
  done_.store(count, std::memory_order_release);
}

/// Work on the operations from the first unfinished one on; the next may overtake only waiting, never work.
bool ProgressQueue::advance_all(int64_t budget_bytes) {
  bool advanced = false;
  const size_t pushed = pushed_.load(std::memory_order_acquire);
  size_t done = done_.load(std::memory_order_relaxed);
  for (size_t i = done; i < pushed; ++i) {
    const Progress progress = operations_[i]->advance(budget_bytes);
    if (progress == Progress::kDone && i == done) {
      set_done(++done);
      advanced = true;
    }
    if (progress == Progress::kAdvanced) return true;
    if (!operations_[i]->local_done()) break;
  }
  return advanced;
}

bool ProgressQueue::poke(int64_t budget_bytes) noexcept {
  if ((driver_ != Driver::kCaller && driver_ != Driver::kProgram) || failed_.load(std::memory_order_relaxed) ||
      done_.load(std::memory_order_relaxed) == pushed_.load(std::memory_order_acquire))
    return false;
  if (driver_ == Driver::kProgram && os::is_library_thread()) return false;
  const std::unique_lock lock(work_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const StandardFloats floats;  // marking, which calls this, holds none
  const int64_t begin = os::now_ns();
  bool advanced = false;
  if (std::optional<Error> error = try_to([&] { advanced = advance_all(budget_bytes); })) {
    error_.swap(error);
    failed_.store(true, std::memory_order_relaxed);
  }
  times_.poked_ns.fetch_add(os::now_ns() - begin, std::memory_order_relaxed);
  return advanced;
}

void ProgressQueue::finish_from(size_t first) {
  for (size_t i = first; i < pushed_.load(std::memory_order_acquire); ++i) {
    operations_[i]->finish();
    set_done(i + 1);
  }
}

void ProgressQueue::drain() {
  if (!is_by_thread()) {
    const std::lock_guard lock(work_);
    if (!failed_.load(std::memory_order_relaxed))
      error_ = try_to([this] { finish_from(done_.load(std::memory_order_relaxed)); });
    times_.last_done_ns.store(os::now_ns(), std::memory_order_relaxed);
  } else {
    wait_for_thread();
  }
  std::optional<Error> error;
  error.swap(error_);
  {
    const std::lock_guard lock(mutex_);
    pushed_.store(0);
    done_.store(0);
    failed_.store(stop_);
    if (is_by_thread()) tell_thread_works(false);
    if (stop_) error = thread_is_lost();
  }
  if (error) throw Error(*error);
}

void ProgressQueue::wait_for_thread() {
  std::optional<bootstrap::CallState::WaitingForQueue> waiting;
  if (waits_.calls != nullptr) waiting.emplace(*waits_.calls, waits_.channel);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failed_.load() || done_.load() == pushed_.load(); });
}

void ProgressQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || (is_by_thread() && !failed_.load() && done_.load() < pushed_.load()); });
    if (stop_) return;
    const size_t at = done_.load();
    lock.unlock();
    struct Unwound {  // by a function of the program: a wait for the thread, now or in a later pass, gets an error
      ProgressQueue* queue;
      ~Unwound() {
        if (queue == nullptr) return;
        const std::lock_guard lost(queue->mutex_);
        queue->stop_ = true;
        queue->failed_.store(true);
        queue->changed_.notify_all();
      }
    } unwound{this};
    const std::optional<Error> error = try_to([&] { operations_[at]->finish(); });
    unwound.queue = nullptr;
    lock.lock();
    times_.last_done_ns.store(os::now_ns(), std::memory_order_relaxed);
    if (error) {
      error_ = error;
      failed_.store(true);
    } else {
      set_done(at + 1);
    }
    if (is_by_thread() && !failed_.load() && done_.load() < pushed_.load()) continue;
    tell_thread_works(false);
    changed_.notify_all();
  }
}

}  // namespace ddp::collective
