// SPDX-License-Identifier: Apache-2.0
// Messages that were posted, and that end by themselves. As long as a thread of the program waits for a message, it works on
// all of them. When none has waited for about a millisecond, a thread of the library does, and sleeps until something comes.
// So a message that is posted and waited for at once wakes one thread and not two.
// Threads: any.
// Tested by conformance/requests_test.cpp and unit/exchange/messenger_test.cpp.
#pragma once

#include <atomic>
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

  /// What was begun.
  [[nodiscard]] RequestPtr post(messages::RequestPtr message);
  /// Has everything ended?
  [[nodiscard]] bool is_idle();
  /// What has not ended ends with this error. The last call.
  void stop(const Error& cause) noexcept;

 private:
  class Posted;
  using PostedPtr = std::shared_ptr<Posted>;
  using Lock = std::unique_lock<std::mutex>;

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
  std::mutex mutex_;                 // guards what follows
  std::vector<PostedPtr> open_;
  std::optional<Error> stopped_;
  IdleWait idle_;      // of the thread; hurried: a message was tested
  bool seen_ = false;  // by the thread: something was open at its last look
  std::thread thread_;
};

}  // namespace ddp::group
