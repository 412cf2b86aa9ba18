// SPDX-License-Identifier: Apache-2.0
// The gathers of values that continue after the steps that made them (parts/step/late_values.hpp), over a channel of their
// own, so that they are in the way of no pass and no other call. All models of a group have one lane: gathers run in the
// order of the steps, which is the same on all ranks. Threads: open(), post and wait from one at a time; the rest from any.
// Tested by conformance/late_values_test.cpp.
#pragma once

#include <atomic>
#include <memory>

#include "control/call_state.hpp"
#include "group/request_lane.hpp"

namespace ddp::collective {
class Transport;
}  // namespace ddp::collective

namespace ddp::group {

class Channels;
class Group;

/// Below that of requests, above that of the blocking calls.
inline constexpr int32_t kValueChannel = bootstrap::kRequestChannel - 1;

class ValueLane {
 public:
  /// What an end in good order waits for gathers, milliseconds.
  static constexpr int64_t kEndMs = 3'000;

  explicit ValueLane(Channels& channels) : channels_(channels) {}
  ~ValueLane() { stop(group_destroyed()); }
  ValueLane(const ValueLane&) = delete;
  ValueLane& operator=(const ValueLane&) = delete;

  /// Open the channel, if it is not open. Collective. An error breaks the group, unless all ranks have it.
  static void open(Group& group);

  // Of the channel, which is open.
  [[nodiscard]] collective::Transport& transport() const noexcept { return *transport_; }
  /// `work` runs when everything that was posted before has ended.
  [[nodiscard]] RequestPtr post(std::function<void()> work) { return lane_->post(std::move(work)); }
  /// Until it has ended. A thread of the library runs it, so all ranks see the same caller. Throws its error.
  void wait(Request& request);
  /// Returns when everything that was posted has ended; until the next post this thread may use the transport.
  void await_turn();

  /// Has everything ended, within kEndMs? At once if the channel is not open.
  [[nodiscard]] bool await_idle() noexcept;
  /// See RequestLane::stop().
  void stop(const Error& cause) noexcept;

 private:
  Channels& channels_;
  std::shared_ptr<RequestLane> lane_;
  collective::Transport* transport_ = nullptr;
};

}  // namespace ddp::group
