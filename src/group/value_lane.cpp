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
        self.transport_ = &self.channels_.open(kValueChannel);
        self.lane_ = std::make_shared<RequestLane>(self.channels_.calls(), RequestLane::Begin::kAtOnce, kValueChannel);
      },
      [&](const Error& error) { break_for(group, error.is_agreed() ? Part::kLocal : Part::kOwn, nullptr, error); });
}

void ValueLane::wait(Request& request) {
  if (request.ended()) return static_cast<void>(request.test());
  bootstrap::CallState& calls = channels_.calls();
  const bootstrap::CallState::In inside(calls, bootstrap::UserCall::kOptimizerStep);
  const bootstrap::CallState::WaitingForQueue waiting(calls, kValueChannel);
  while (!request.wait(kEndMs)) {
  }
}

void ValueLane::await_turn() {
  wait(*post([] {}));
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
