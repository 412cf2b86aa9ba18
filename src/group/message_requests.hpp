// SPDX-License-Identifier: Apache-2.0
// Messages that were posted, and that end by themselves. As long as a thread of the program waits for a message, it works on
// all of them. When none has waited for about a millisecond, a thread of the library does, and sleeps until something comes.
// So a message that is posted and waited for at once wakes one thread and not two.
//
// A send of a tensor on a GPU begins when its copy in host memory is complete. Until then, later sends with its tag to the
// same rank wait for their turn, so messages keep the order in which they were posted; no other message waits.
// Threads: any.
// Tested by conformance/requests_test.cpp, gpu_host/requests_test.cpp and unit/exchange/messenger_test.cpp.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "exchange/messages/messenger.hpp"
#include "group/health.hpp"
#include "group/idle_wait.hpp"
#include "group/request.hpp"

namespace ddp::group {

/// An error of a message breaks the group as that of any exchange (Health::fail), unless it is that the other rank has left
/// in good order: then all else stays as it is.
void fail_message(Health& health, const Error& error);

class MessageRequests : public std::enable_shared_from_this<MessageRequests> {
 public:
  /// All live until stop() has returned.
  MessageRequests(Health& health, bootstrap::CallState& calls, messages::Messenger& messenger)
      : health_(health), calls_(calls), messenger_(messenger) {}
  ~MessageRequests();
  MessageRequests(const MessageRequests&) = delete;
  MessageRequests& operator=(const MessageRequests&) = delete;

  /// Host memory that is sent.
  struct Send {
    int32_t peer = 0;
    messages::Key key;
    messages::Content content;
    const std::byte* data = nullptr;
  };
  /// Sent once is_ready(), which any thread may ask and which keeps the memory as long as the request lives.
  [[nodiscard]] RequestPtr post_send(const Send& send, std::function<bool()> is_ready);
  /// A receive that was begun, into `memory`, which lives as long as the request.
  [[nodiscard]] RequestPtr post_receive(messages::RequestPtr message, std::shared_ptr<const void> memory);
  /// Returns when no posted send to that rank with that key waits for its tensor. Throws if the group breaks.
  void await_turn(int32_t peer, const messages::Key& key);
  /// Has everything ended?
  [[nodiscard]] bool is_idle();
  /// What has not ended ends with this error. The last call.
  void stop(const Error& cause) noexcept;

 private:
  class Posted;
  using PostedPtr = std::shared_ptr<Posted>;
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] RequestPtr watch(const PostedPtr& posted);
  void begin_sends();
  void count_sends() noexcept;
  [[nodiscard]] bool has_begun(Posted& request);
  void close(Posted& request, const std::optional<Error>& error) noexcept;
  template <class Work>
  void work_on(Posted& request, Work&& work) noexcept;
  [[nodiscard]] bool look(Posted& request);
  [[nodiscard]] bool stay(Posted& request, int64_t ms);
  void hurry() noexcept;
  void run();
  void work_on_all(const std::vector<PostedPtr>& open, const std::optional<Error>& problem) noexcept;

  Health& health_;
  bootstrap::CallState& calls_;
  messages::Messenger& messenger_;
  std::atomic<int32_t> waiting_{0};  // threads of the program that work on messages
  std::atomic<size_t> not_begun_{0};
  std::mutex turns_;             // guards sends_, and whether a request has begun
  std::deque<PostedPtr> sends_;  // that have not begun, as they were posted
  std::mutex mutex_;             // guards what follows
  std::vector<PostedPtr> open_;
  std::optional<Error> stopped_;
  IdleWait idle_;      // of the thread; hurried: a message was tested
  bool seen_ = false;  // by the thread: something was open at its last look
  std::thread thread_;
};

}  // namespace ddp::group
