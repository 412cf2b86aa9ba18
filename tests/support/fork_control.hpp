// SPDX-License-Identifier: Apache-2.0
// A control plane between forked children of one test: gather, abort, death and silence, over a shared page and one pipe a
// rank. Of the library's own control plane it has only the interface, so transports between processes are tested
// without it.
//
//   ForkHub hub(4);
//   Procs procs(4, [&](int rank, Reporter&) { ForkControl control(hub, rank, 500); ... });
//   hub.release();
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/control.hpp"

namespace ddp::test {

/// Made before the fork.
class ForkHub {
 public:
  static constexpr int kMost = 16;
  static constexpr size_t kTextBytes = 4096;

  explicit ForkHub(int size);
  ~ForkHub();
  ForkHub(const ForkHub&) = delete;
  ForkHub& operator=(const ForkHub&) = delete;

  /// In the parent, after the fork: only a child keeps its own pipe open.
  void release();

 private:
  friend class ForkControl;
  struct Page {
    std::atomic<int> cause_state;  // 0: none, 1: being written, 2: there
    int cause_status;
    char cause_text[kTextBytes];
    std::atomic<int64_t> arrived;  // in all gathers together
    std::atomic<int64_t> left;
    std::atomic<int64_t> beats[kMost];
    std::atomic<int> pids[kMost];
    uint32_t lengths[kMost];
    char texts[kMost][kTextBytes];
  };
  int size_;
  Page* page_;
  std::vector<int> read_ends_, write_ends_;
};

/// Made in each child.
class ForkControl : public bootstrap::Control {
 public:
  ForkControl(ForkHub& hub, int rank, int64_t dead_after_ms);
  ~ForkControl() override;

  [[nodiscard]] int32_t rank() const noexcept override { return rank_; }
  [[nodiscard]] int32_t size() const noexcept override { return hub_.size_; }
  [[nodiscard]] const bootstrap::Member& member(int32_t rank) const noexcept override {
    return members_[static_cast<size_t>(rank)];
  }
  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine,
                                                os::Deadline deadline) override;
  void abort(const Error& cause) noexcept override;
  void leave(bootstrap::Leaving) noexcept override {}
  void on_failure(std::function<void(const Error&)> fn) override;
  void set_progress(int64_t, int32_t) noexcept override {}
  [[nodiscard]] std::string describe_progress(int32_t rank) const override;

 private:
  void watch(int64_t dead_after_ms);
  void look_for_dead(int64_t dead_after_ms);
  void wait_until(const std::atomic<int64_t>& counter, int64_t value, os::Deadline deadline);

  ForkHub& hub_;
  int rank_;
  std::vector<bootstrap::Member> members_;
  std::mutex mutex_;  // guards fn_
  std::function<void(const Error&)> fn_;
  std::vector<std::pair<int64_t, int64_t>> seen_;  // last beat and when it changed; the watcher's
  int64_t rounds_ = 0;
  std::atomic<bool> stop_{false};
  std::thread watcher_;
};

}  // namespace ddp::test
