// SPDX-License-Identifier: Apache-2.0
#include "group/value_lane.hpp"

#include "core/attempt.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"

namespace ddp::group {

void ValueLane::open(Group& group) {
  ValueLane& self = group.channels().values();
  if (self.lane_ != nullptr) return;
  on_error<Error>(
      [&] {
        self.transport_ = &self.channels_.open(bootstrap::kValueChannel);
        using Begin = RequestLane::Begin;
        self.lane_ = std::make_shared<RequestLane>(
            self.channels_.calls(), self.transport_->pollable() ? Begin::kLater : Begin::kAtOnce,
            RequestLane::Kind{bootstrap::kValueChannel, bootstrap::UserCall::kWaitValues});
      },
      [&](const Error& error) { break_for(group, error.is_agreed() ? Part::kLocal : Part::kOwn, nullptr, error); });
}

void ValueLane::await_turn() {
  static_cast<void>(post([] {})->wait(Request::kForEver));
}

bool ValueLane::await_idle() noexcept {
  if (lane_ == nullptr || lane_->is_idle()) return true;
  bool idle = false;
  static_cast<void>(try_to([&] { idle = post([] {})->wait(kEndMs); }));
  return idle;
}

void ValueLane::stop(const Error& cause) noexcept {
  if (lane_ != nullptr) lane_->stop(cause);
}

}  // namespace ddp::group
