// SPDX-License-Identifier: Apache-2.0
// The thread that looks after NCCL: it asks NCCL for trouble ten times a second, sees that enqueued work comes to an end,
// and ends the communicator when the group breaks, because that call may block, and no other thread may wait for it.
//
// A connection that fails is usually a rank that died, and the control plane knows its name a moment later; so trouble that
// NCCL reports is kept back for half a second to let the better cause come first.
// Threads: its own.
// Tested by gpu_host/failure_test.cpp.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "device/gpu/device.hpp"
#include "exchange/transport.hpp"
#include "nccl/communicator.hpp"

namespace ddp::nccl {

class Watch {
 public:
  Watch(const collective::TransportContext& context, std::shared_ptr<const gpu::Device> device,
        std::shared_ptr<Communicator> communicator);
  /// Stops within two seconds, also while NCCL blocks: the thread is left behind then, and keeps the device and the
  /// communicator, but nothing of the group. No thread is in wake().
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Work was enqueued on this stream; it has to be done within the group's timeout. Must not be called for a captured
  /// stream.
  void expect_end_of(void* stream);
  /// The group broke: end NCCL. Any thread, quick.
  void wake() noexcept;
  /// Look no more, within two seconds; false: the thread is inside NCCL and will be left behind, so no other code may end
  /// the communicator. wake() may still come.
  bool stop() noexcept;
  /// Wait until NCCL was ended after wake(), at most this long. Was it?
  bool await_end(int64_t limit_ms) noexcept;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  bool left_behind_ = false;
};

}  // namespace ddp::nccl
