// SPDX-License-Identifier: Apache-2.0
#include "group/requests.hpp"

#include "group/channels.hpp"

namespace ddp::group {

Requests::Requests(Health& health, Channels& channels, messages::Messenger* messenger) : channels_(channels) {
  if (messenger != nullptr) messages_ = std::make_shared<MessageRequests>(health, channels.calls(), *messenger);
}

Requests::~Requests() { stop(group_destroyed()); }

void Requests::open() {
  if (is_open()) return;
  transport_ = &channels_.open(bootstrap::kRequestChannel);
  using Begin = RequestLane::Begin;
  lane_ = std::make_shared<RequestLane>(channels_.calls(), transport_->pollable() ? Begin::kLater : Begin::kAtOnce);
}

bool Requests::is_idle() const {
  return (lane_ == nullptr || lane_->is_idle()) && (messages_ == nullptr || messages_->is_idle());
}

void Requests::stop(const Error& cause) noexcept {
  if (lane_ != nullptr) lane_->stop(cause);
  if (messages_ != nullptr) messages_->stop(cause);
}

}  // namespace ddp::group
