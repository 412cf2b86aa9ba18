// SPDX-License-Identifier: Apache-2.0
// The progress queues of the passes that are open in a group, by channel. A caller that marks a gradient or waits on one
// channel also works on the buckets of the others, so that passes that are open together progress together.
// Threads: any.
// Tested by conformance/channels_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "control/call_state.hpp"

namespace ddp::collective {

class ProgressQueue;

class OpenQueues {
 public:
  void add(int32_t channel, ProgressQueue& queue) noexcept;
  /// When it returns, no thread works on the channel's queue from here.
  void remove(int32_t channel) noexcept;

  /// A bounded share of work on the queues of other channels than this one; never waits. False if there was nothing to do.
  bool poke_others(int32_t channel) noexcept {
    return (open_.load(std::memory_order_relaxed) & ~bit(channel)) != 0 && poke_all_but(channel);
  }

 private:
  [[nodiscard]] static constexpr uint32_t bit(int32_t channel) noexcept { return uint32_t{1} << channel; }
  bool poke_all_but(int32_t channel) noexcept;

  std::atomic<uint32_t> open_{0};  // a bit for each channel
  std::mutex mutex_;               // guards queues_, and is held while one of them is worked on
  std::array<ProgressQueue*, bootstrap::kMostChannels> queues_{};
};

}  // namespace ddp::collective
