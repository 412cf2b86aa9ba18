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

#include "core/attempt.hpp"
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
  /// What the exchanges are made of; its channel is the model's. For what is no exchange of buckets.
  [[nodiscard]] virtual Transport& transport() const noexcept = 0;

  /// Throws what broke the group, or that it was destroyed.
  virtual void check_usable() const = 0;
  /// An error of an exchange breaks the group for all ranks, if it is of that kind; then this throws the first cause.
  virtual void fail(const Error& error) const = 0;
  /// This rank cannot go on, and the other ranks learn why. `function` is the public call, or NULL.
  virtual void give_up(const char* function, const Error& why) const noexcept = 0;

  /// A pass of the model opens. Throws INVALID_STATE if another pass is in the way, and as check_usable().
  virtual void open_pass(ProgressQueue& queue) const = 0;
  virtual void close_pass(ProgressQueue& queue) const noexcept = 0;
};

/// A pass of the model is open as long as the object lives.
class OpenPass {
 public:
  /// Throws as Ranks::open_pass, and with `gpu`, where its buckets are exchanged on GPUs, as GpuSide::open_pass.
  OpenPass(const Ranks& ranks, GpuSide* gpu, ProgressQueue& queue) : ranks_(ranks), gpu_(gpu), queue_(queue) {
    ranks_.open_pass(queue_);
    if (gpu_ != nullptr) on_error([&] { gpu_->open_pass(); }, [&](const Error&) { ranks_.close_pass(queue_); });
  }
  ~OpenPass() {
    if (gpu_ != nullptr) gpu_->close_pass();
    ranks_.close_pass(queue_);
  }
  OpenPass(const OpenPass&) = delete;
  OpenPass& operator=(const OpenPass&) = delete;

 private:
  const Ranks& ranks_;
  GpuSide* const gpu_;
  ProgressQueue& queue_;
};

}  // namespace ddp::collective
