// SPDX-License-Identifier: Apache-2.0
// Sends and receives messages of one rank, whatever they are sent over. Whoever waits for a message works on all that can
// go on meanwhile, so no thread of the library is needed: small messages of the others arrive, and their requests for large
// ones are answered. A rank that is in no call reads nothing; what it gets fills the stream, and then its senders wait.
//
// What is sent is copied nowhere but into the stream; a small message for which there is no receive yet is kept here, up to
// kWindowBytes from each rank.
// Threads: any. One lock for all; it is not held while a thread sleeps.
// Tested by unit/exchange/messenger_test.cpp, conformance/messages_test.cpp and process/messages_test.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/failure.hpp"
#include "control/control.hpp"
#include "control/message_wait.hpp"
#include "exchange/messages/link.hpp"
#include "exchange/messages/match_queue.hpp"
#include "exchange/messages/streams.hpp"
#include "os/awake_clock.hpp"
#include "os/clock.hpp"

namespace ddp::messages {

// How long a message is waited for: until nothing of it has moved for the group's time limit, counted over all waits for it;
// and after a failure that may not concern it, for a while.
// Threads: the messenger's lock.
class Patience {
 public:
  static constexpr int64_t kLookAgainMs = 200;  // a bound for what no bell covers: clocks, deadlines

  /// 0 or less: without a limit.
  explicit Patience(int64_t timeout_ms) : timeout_ns_(std::min(timeout_ms > 0 ? timeout_ms : kForEverMs, kForEverMs) * kMs) {
    clock_.set_most_ms(2 * kLookAgainMs);
  }

  /// Has nothing of the request moved for too long, from the first call on?
  [[nodiscard]] bool is_late(const Request& request) {
    const int64_t now_ns = os::now_ns();
    clock_.tick(now_ns);
    if (!started_ || request.moved != moved_) started_ = true, moved_ = request.moved, since_ns_ = clock_.at(now_ns);
    return clock_.at(now_ns) - since_ns_ >= timeout_ns_;
  }
  /// From the first call on, for a while.
  [[nodiscard]] bool has_grace() {
    if (grace_from_ns_ == 0) grace_from_ns_ = os::now_ns();
    return os::now_ns() - grace_from_ns_ < kGraceMs * kMs;
  }

 private:
  static constexpr int64_t kMs = 1'000'000;
  static constexpr int64_t kGraceMs = 500;  // for the first cause, and for bytes that have been sent already
  static constexpr int64_t kForEverMs = INT64_MAX / (4 * kMs);

  const int64_t timeout_ns_;
  os::AwakeClock clock_;  // the others may have been stopped with this process
  bool started_ = false;
  int64_t since_ns_ = 0;
  int64_t moved_ = 0;
  int64_t grace_from_ns_ = 0;
};

class Messenger {
 public:
  /// `control` and `failure` live longer. `timeout_ms`: as in ddp_group_options.
  Messenger(std::unique_ptr<Streams> streams, bootstrap::Control& control, bootstrap::Failure& failure, int64_t timeout_ms);
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  /// The program has promised that one thread at a time uses the group. Once, before the first message.
  void let_watch();

  /// Begin to send. `data` is not changed until the request is done.
  [[nodiscard]] RequestPtr send(int32_t peer, const Key& key, const Content& content, const std::byte* data);
  /// Begin to receive, from `source` or kAnySource. `data` is the request's until it is done.
  [[nodiscard]] RequestPtr receive(int32_t source, const Key& key, const Content& content, std::byte* data);
  /// Until it is done. Throws what ends the group: the first cause, TIMED_OUT, PEER_FAILED. A request that has failed alone
  /// says so in its `error`. If this throws, the request is given up.
  void wait(const RequestPtr& request);
  /// The same for `ms` at most; false: it is not done. The patience is the request's for all its waits.
  [[nodiscard]] bool wait_for(const RequestPtr& request, Patience& patience, int64_t ms);
  /// Do what can be done now. Is the request done? Throws as wait(), except TIMED_OUT.
  [[nodiscard]] bool test(const RequestPtr& request, Patience& patience);
  /// Do what can be done, and if that is nothing, sleep until there is something, `ms` at most.
  void attend(int64_t ms);
  [[nodiscard]] Patience patience() const { return Patience(timeout_ms_); }
  /// Nothing is read or written there any more. False, unless the group is broken: it sends, or bytes of it have come, so it
  /// has to be waited for.
  bool give_up(const RequestPtr& request);
  /// The same in any case: if it is under way, the stream is of no use any more, and the group must break.
  void drop(const RequestPtr& request) noexcept;

  /// A key for the messages of the next collective call of this kind, kCollective or kRequest. All ranks make those of a
  /// kind in the same order. One thread at a time for each kind.
  [[nodiscard]] Key next_collective(Space space) noexcept {
    return {space, ++(space == Space::kRequest ? requests_ : collectives_)};
  }

  /// Make all streams now. Collective.
  void open_all(os::Deadline deadline) { streams_->open_all(deadline); }
  /// In good order, the last call.
  void finish() noexcept;
  /// The group broke: end waits soon. Any thread.
  void wake() noexcept { streams_->bell().ring(); }

 private:
  class Waiter;
  [[nodiscard]] bool look(bootstrap::MessageState& state);
  [[nodiscard]] bool progress();
  [[nodiscard]] bool wait(const RequestPtr& request, Patience& patience, os::Deadline end);
  void sleep(int64_t ms, const Request* request);
  [[nodiscard]] bool look_a_while(const RequestPtr& request);
  void check_hope(const Request& request, Patience& patience);
  void check_time(const Request& request, Patience& patience) const;
  [[nodiscard]] bool has_left(const Request& request);
  [[nodiscard]] bool may_still_come(const Request& request);
  [[nodiscard]] Error timed_out(const Request& request) const;
  [[nodiscard]] Error left(const Request& request) const;
  [[nodiscard]] Error gone(const Request& request) const;
  [[nodiscard]] Link& link(int32_t peer) { return links_[static_cast<size_t>(peer)]; }

  bootstrap::Control& control_;
  bootstrap::Failure& failure_;
  const int64_t timeout_ms_;
  int64_t collectives_ = 0;
  int64_t requests_ = 0;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<Streams> streams_;
  MatchQueue queue_;
  std::vector<Link> links_;           // by rank
  int32_t waiters_ = 0;               // threads in wait()
  const Request* awaited_ = nullptr;  // by the first of them
};

}  // namespace ddp::messages
