// SPDX-License-Identifier: Apache-2.0
// Device memory that the calls of a group share, one after the other, on whatever streams they run.
//
// Each use waits, on the device, for the one before it: an event is recorded behind every use, and the stream of the next is
// held back by it.
// Promises: no host wait, except when it grows (freeing waits for the device); it never shrinks, so a training loop
// allocates in its first step. Threads: one at a time, as the group's collectives. Tested by gpu_host/transfer_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "device/gpu/device.hpp"

namespace ddp::gpu {

class Scratch {
 public:
  explicit Scratch(const Device& device) : device_(device) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// The memory, for work on one stream. Ends with done(), or without it when something was thrown.
  class Use {
   public:
    Use(Scratch& scratch, void* stream) : scratch_(scratch), stream_(stream) {}
    Use(Use&& other) noexcept : scratch_(other.scratch_), stream_(other.stream_), done_(std::exchange(other.done_, true)) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    /// On 256 bytes; the content is anything.
    [[nodiscard]] std::byte* data() const noexcept { return scratch_.memory_.data(); }
    /// All work has been enqueued.
    void done();

   private:
    Scratch& scratch_;
    void* stream_;
    bool done_ = false;
  };

  /// Throws OUT_OF_MEMORY.
  [[nodiscard]] Use take(int64_t bytes, void* stream);

 private:
  const Device& device_;
  Array memory_;
  int64_t bytes_ = 0;
  std::unique_ptr<Event> last_;  // behind the newest use
};

}  // namespace ddp::gpu
