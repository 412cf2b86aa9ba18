// SPDX-License-Identifier: Apache-2.0
// The ranks of a group as the passes of one model see them: their number, what they tell each other, the exchanges between
// them, and the order of work on their GPUs. The channel of a model is one (group/channels.hpp); so what uses this interface
// needs no group, and a test can give it other ranks.
// Threads: one at a time, as Transport.
// Tested by unit/pass/part_order_test.cpp and conformance/channels_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/open_queues.hpp"
#include "exchange/transport.hpp"

namespace ddp::collective {

class Ranks {
 public:
  virtual ~Ranks() = default;

  [[nodiscard]] virtual int32_t rank() const noexcept = 0;
  [[nodiscard]] virtual int32_t size() const noexcept = 0;
  /// "rank 3 (host b, pid 4711)"
  [[nodiscard]] virtual std::string name_of(int32_t rank) const = 0;

  /// The place of these exchanges among all of the group. `calls` NULL: no call is noted.
  struct Place {
    OpenQueues& queues;
    bootstrap::CallState* calls;
    int32_t channel;
  };
  [[nodiscard]] virtual Place place() const noexcept = 0;

  /// Collective: each rank gives some bytes, up to 8 MiB, and gets those of all ranks, by rank. `what` names the exchange in
  /// errors. Throws what broke the group.
  [[nodiscard]] virtual std::vector<std::string> gather(std::string_view what, std::string_view mine) const = 0;
  /// Collective, in the same order on all ranks: an exchange over pieces in host memory, or on a GPU if `spec` says so.
  [[nodiscard]] virtual std::unique_ptr<BucketOperation> prepare(const ExchangeSpec& spec) const = 0;
  /// As Transport::pollable.
  [[nodiscard]] virtual bool pollable() const noexcept = 0;

  /// Throws what broke the group, or that it was destroyed.
  virtual void check_usable() const = 0;
  /// An error of an exchange breaks the group for all ranks, if it is of that kind; then this throws the first cause.
  virtual void fail(const Error& error) const = 0;
  /// This rank cannot go on, and the other ranks learn why. `function` is the public call, or NULL.
  virtual void give_up(const char* function, const Error& why) const noexcept = 0;

  /// A pass of the model opens. Throws INVALID_STATE if another pass is in the way, and as check_usable().
  virtual void open_pass(bool on_gpu, ProgressQueue& queue) const = 0;
  virtual void close_pass(bool on_gpu, ProgressQueue& queue) const noexcept = 0;

  // Of tensors on GPUs. `stream`: of the program.
  /// What is exchanged from now on comes after what is on the stream now, or the other way round.
  virtual void order_after(void* stream) const = 0;
  virtual void order_before(void* stream) const = 0;
  /// In a group that can recover the host waits until what was exchanged is done, so that it counts what has happened. In
  /// another group this does nothing. Throws INVALID_STATE, which names `function`, while exchanges are captured into a
  /// graph.
  virtual void settle(const char* function) const = 0;
  [[nodiscard]] virtual bool is_capturing(void* stream) const = 0;
  /// Does all of this lie in one piece of memory that the group gave out on a GPU?
  [[nodiscard]] virtual bool gave_on_gpu(const std::byte* data, int64_t bytes) const noexcept = 0;
};

/// A pass of the model is open as long as the object lives.
class OpenPass {
 public:
  /// Throws as Ranks::open_pass.
  OpenPass(const Ranks& ranks, bool on_gpu, ProgressQueue& queue) : ranks_(ranks), on_gpu_(on_gpu), queue_(queue) {
    ranks_.open_pass(on_gpu_, queue_);
  }
  ~OpenPass() { ranks_.close_pass(on_gpu_, queue_); }
  OpenPass(const OpenPass&) = delete;
  OpenPass& operator=(const OpenPass&) = delete;

 private:
  const Ranks& ranks_;
  const bool on_gpu_;
  ProgressQueue& queue_;
};

}  // namespace ddp::collective
