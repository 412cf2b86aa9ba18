// SPDX-License-Identifier: Apache-2.0
#include "support/fork_control.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>

#include "control/identity.hpp"

namespace ddp::test {

ForkHub::ForkHub(int size) : size_(size) {
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  page_ = new (memory) Page{};
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read_ends_.push_back(ends[0]);
    write_ends_.push_back(ends[1]);
  }
}

ForkHub::~ForkHub() {
  release();
  for (const int end : read_ends_) close(end);
  munmap(page_, sizeof(Page));
}

void ForkHub::release() {
  for (const int end : write_ends_) close(end);
  write_ends_.clear();
}

ForkControl::ForkControl(ForkHub& hub, int rank, int64_t dead_after_ms)
    : hub_(hub), rank_(rank), seen_(static_cast<size_t>(hub.size_), {-1, os::now_ns()}) {
  for (int other = 0; other < hub.size_; ++other)
    if (other != rank) close(hub.write_ends_[static_cast<size_t>(other)]);
  hub.page_->pids[rank] = getpid();
  for (int other = 0; other < hub.size_; ++other)
    members_.push_back(bootstrap::Member{other, "testhost", "", 0, "127.0.0.1"});
  const std::vector<std::string> boot_ids =
      gather("identities", bootstrap::this_member(rank).boot_id, os::Deadline::in_ms(10'000));
  for (int other = 0; other < hub.size_; ++other) {
    members_[static_cast<size_t>(other)].pid = hub.page_->pids[other];
    members_[static_cast<size_t>(other)].boot_id = boot_ids[static_cast<size_t>(other)];
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  watcher_ = std::thread([this, dead_after_ms] { watch(dead_after_ms); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ForkControl::~ForkControl() {
  hub_.page_->beats[rank_] = INT64_MAX;  // left in good order: neither dead nor silent
  stop_ = true;
  if (watcher_.joinable()) watcher_.join();
}

void ForkControl::wait_until(const std::atomic<int64_t>& counter, int64_t value, os::Deadline deadline) {
  while (counter < value) {
    if (hub_.page_->cause_state == 2) throw Error(static_cast<ddp_status>(hub_.page_->cause_status), hub_.page_->cause_text);
    if (deadline.passed()) throw Error(DDP_ERROR_TIMED_OUT, "gather of a test");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::vector<std::string> ForkControl::gather(std::string_view, std::string_view mine, os::Deadline deadline) {
  ForkHub::Page& page = *hub_.page_;
  const int64_t all = int64_t{hub_.size_} * ++rounds_;
  if (mine.size() > ForkHub::kTextBytes) throw Error(DDP_ERROR_INTERNAL, "more than a test can gather");
  std::memcpy(page.texts[rank_], mine.data(), mine.size());
  page.lengths[rank_] = static_cast<uint32_t>(mine.size());
  ++page.arrived;
  wait_until(page.arrived, all, deadline);
  std::vector<std::string> result;
  for (int rank = 0; rank < hub_.size_; ++rank) result.emplace_back(page.texts[rank], page.lengths[rank]);
  ++page.left;
  wait_until(page.left, all, deadline);
  return result;
}

void ForkControl::abort(const Error& cause) noexcept {
  ForkHub::Page& page = *hub_.page_;
  int none = 0;
  if (!page.cause_state.compare_exchange_strong(none, 1)) return;
  page.cause_status = cause.status();
  std::snprintf(page.cause_text, sizeof page.cause_text, "%s", cause.what());
  page.cause_state = 2;
}

void ForkControl::on_failure(std::function<void(const Error&)> fn) {
  const std::lock_guard lock(mutex_);
  fn_ = std::move(fn);
}

std::string ForkControl::describe_progress(int32_t rank) const {
  return members_[static_cast<size_t>(rank)].name() + " is alive";
}

void ForkControl::look_for_dead(int64_t dead_after_ms) {
  for (int rank = 0; rank < hub_.size_; ++rank) {
    const int64_t beat = hub_.page_->beats[rank];
    auto& [last, when] = seen_[static_cast<size_t>(rank)];
    if (rank == rank_ || beat == INT64_MAX) continue;
    if (beat != last) {
      last = beat;
      when = os::now_ns();
    }
    pollfd end{hub_.read_ends_[static_cast<size_t>(rank)], POLLIN, 0};
    const bool closed = poll(&end, 1, 0) > 0;
    if (closed && hub_.page_->beats[rank] != INT64_MAX) abort(Error(DDP_ERROR_PEER_FAILED, member(rank).name() + " died"));
    if (os::now_ns() - when > dead_after_ms * 1'000'000)
      abort(Error(DDP_ERROR_PEER_FAILED, member(rank).name() + " is silent"));
  }
}

void ForkControl::watch(int64_t dead_after_ms) {
  while (!stop_) {
    ++hub_.page_->beats[rank_];
    look_for_dead(dead_after_ms);
    if (hub_.page_->cause_state == 2) {
      const std::lock_guard lock(mutex_);
      if (fn_ == nullptr) continue;
      fn_(Error(static_cast<ddp_status>(hub_.page_->cause_status), hub_.page_->cause_text));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace ddp::test
