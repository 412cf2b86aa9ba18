// SPDX-License-Identifier: Apache-2.0
// What a rank has posted in a group: collectives, over a channel of their own, and messages. All ranks open the channel
// together, with the group or at the first collective that is posted.
// Threads: any; open() from one at a time.
// Tested by conformance/requests_test.cpp.
#pragma once

#include <memory>

#include "group/message_requests.hpp"
#include "group/request_lane.hpp"

namespace ddp::collective {
class Transport;
}  // namespace ddp::collective
namespace ddp::group {

class Channels;

class Requests {
 public:
  /// All live longer. `messenger` is NULL in a group of one.
  Requests(Health& health, Channels& channels, messages::Messenger* messenger);
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// Open the channel, if it is not open. Collective. Throws as Transport::open_channel.
  void open();
  [[nodiscard]] bool is_open() const noexcept { return lane_ != nullptr; }

  /// Of the channel, which is open.
  [[nodiscard]] RequestLane& lane() const noexcept { return *lane_; }
  [[nodiscard]] collective::Transport& transport() const noexcept { return *transport_; }
  /// Not in a group of one.
  [[nodiscard]] MessageRequests& messages() const noexcept { return *messages_; }

  [[nodiscard]] bool is_idle() const;
  /// Everything that has not ended ends with this error, in a group that has broken or is left. The last call.
  void stop(const Error& cause) noexcept;

 private:
  Channels& channels_;
  collective::Transport* transport_ = nullptr;
  std::shared_ptr<RequestLane> lane_;
  std::shared_ptr<MessageRequests> messages_;
};

}  // namespace ddp::group
