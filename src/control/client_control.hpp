// SPDX-License-Identifier: Apache-2.0
// A rank's Control on top of ClientState: the threads of the program that ask and wait, and the control thread on which the
// state machine runs. tcp_control brings the messages to the server over a socket.
//
// Threads: as for Control; protected functions run on the control thread if their comment names no other.
// Tested by process/control_test.cpp.
#pragma once

#include <asio/io_context.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/client_state.hpp"
#include "control/control.hpp"
#include "control/post_in_place.hpp"

namespace ddp::bootstrap {

using Witness = std::function<void(int32_t id)>;
using Check = std::function<void(const Witness&)>;

class ClientControl : public Control {
 public:
  /// True once all are here; false if the connection was lost. Throws the refusal, and TIMED_OUT a little after `left_ms` at
  /// the latest. `check` is called several times a second; its exception ends the wait.
  bool wait_joined(int64_t left_ms, int64_t limit_ms, const Check& check);

  int32_t rank() const noexcept override { return who_.rank; }
  int32_t size() const noexcept override { return who_.size; }
  const Member& member(int32_t rank) const noexcept override { return who_.members[static_cast<size_t>(rank)]; }
  std::vector<std::string> gather(std::string_view what, std::string_view mine, os::Deadline deadline) override;
  void abort(const Error& cause) noexcept override;
  std::optional<Error> settle() override;
  void saw_death(int32_t rank) noexcept override;
  void on_failure(std::function<void(const Error&)> fn) override;
  void set_progress(int64_t pass, int32_t bucket) noexcept override {
    where_.pass.store(pass, std::memory_order_relaxed);
    where_.bucket.store(bucket, std::memory_order_relaxed);
  }
  Sign last_sign(int32_t rank) const override;

 protected:
  /// `io` runs on the control thread. When this is destroyed, `io` no longer exists or holds no handler of this any more.
  ClientControl(asio::io_context& io, ClientConfig config);

  // The connection to the server.
  virtual void send(FrameType type, SharedBody body) = 0;
  /// Close once everything is sent.
  virtual void finish() = 0;
  /// What has arrived is handled now.
  virtual void read_all() {}

  /// The connection is admitted. `said`: the first messages were sent with the proof.
  void start(bool said);
  void frame(Frame&& frame);
  void closed();
  void broke(const std::string& how);
  /// Every tick_ms().
  void tick();
  [[nodiscard]] int64_t tick_ms() const noexcept { return state_.tick_ms(); }
  /// "rank 1 (...) could not go on: out of memory", made in time: when memory runs out a message is lost, and no rank may
  /// wait for it.
  struct LastWords {
    std::optional<Error> error{};  // nothing: the group has not formed
    SharedBody body{};
  };
  [[nodiscard]] const LastWords& last_words() const noexcept { return last_words_; }
  void send_last_words() {
    state_.abort(last_words_.body);
    act();
  }
  void break_group(const Error& cause);
  /// Before the group has formed.
  void refuse(const Error& why) {
    const std::lock_guard lock(mutex_);
    meeting_.refusal = why;
  }
  void link_gone();
  /// No more callbacks begin. Any thread.
  void silence() {
    const std::lock_guard lock(mutex_);
    break_.callback = nullptr;
  }
  void say_goodbye(Leaving how);
  /// The part of leave() that both kinds have. True: the first time, and not from the failure callback. Any thread.
  bool depart(Leaving how) noexcept;

 private:
  template <class Ready, class Look>
  bool wait_awake(std::unique_lock<std::mutex>& lock, int64_t ms, int64_t step_ms, Ready ready, Look look);
  [[nodiscard]] Whereabouts whereabouts() const;
  void act();
  void note(ClientAction& action);
  void server_died();
  [[nodiscard]] bool has_left() const noexcept { return posts_.going == Leaving::kGroup; }

  struct Posts {
    HandlerMemory abort, leave;
    std::optional<Leaving> going{};  // guarded by mutex_
  } posts_;
  asio::io_context& io_;
  struct Who {
    int32_t rank, size;
    std::vector<Member> members{};
  } who_;  // fixed before wait_joined() returns, as the last words
  struct Still {
    explicit Still(int64_t dead_after_ms) : dead_after_ns(dead_after_ms * 1'000'000) {}
    const int64_t dead_after_ns;
    std::atomic<int64_t> broke_ns{INT64_MAX};  // when the first cause came
    std::atomic<int64_t> until_ns{0};          // when this process last resumed after a pause
  } still_;
  struct Where {
    std::atomic<int64_t> pass{-1};
    std::atomic<int32_t> bucket{-1};
  } where_;
  ClientState state_;
  CallWatch call_watch_;
  LastWords last_words_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  struct Meeting {
    bool joined = false, lost = false, link_open = true;
    std::optional<Error> refusal{};
  } meeting_;
  struct Break {
    std::optional<Error> cause{};
    SharedBody told{};               // the cause for the others
    std::optional<Error> settled{};  // the server's word, if this rank had a cause of its own
    std::function<void(const Error&)> callback{};
    bool in_callback = false;
  } break_;
  struct Gathers {
    uint64_t asked = 0, answered = 0;
    std::vector<std::string> blobs{};
    std::optional<Error> error{};
  } gathers_;
  std::vector<Sign> heard_;
};

}  // namespace ddp::bootstrap
