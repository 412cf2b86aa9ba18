// SPDX-License-Identifier: Apache-2.0
// What the ranks of a model with uneven_inputs tell each other before they act together, so that a rank that has run out of
// data and only answers (join.hpp) knows the next call of the others.
//
// It is a bucket without gradients that goes before the buckets of a pass, on the same queue: no training rank waits for it,
// and the order of collectives stays the same on all ranks. Other calls on the model (buffers, checks, checkpoints) wait for
// it first. Cost: one announcement (shared memory) or one header round (sockets), during the pass. Threads: those of the
// pass. Tested by conformance/uneven_test.cpp.
#pragma once

#include <cstdint>
#include <memory>

#include "exchange/progress_queue.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/group.hpp"

namespace ddp::parts {

/// The next call of a rank, as bits, because bucket headers are combined bit by bit. A rank that has joined sends none.
enum class Call : uint64_t {
  kNothing = 0,
  kPass = 1,
  kSyncBuffers = 2,
  kRootIsHere = 4,  // with kSyncBuffers: sent by the root
  kRefused = 8      // what a joined rank has no part in
};

class JoinHeader {
 public:
  /// Collective.
  JoinHeader(const group::Channel& channel, uint64_t plan_hash);

  /// Say what comes; never waits. `argument`: 32 bits that go with it (the root).
  void start(collective::ProgressQueue& queue, Call call, int32_t argument, int32_t joined);
  /// After the queue has drained: what the ranks that have not joined do. They do the same, or what follows is a MISMATCH.
  [[nodiscard]] bool heard(Call call) const noexcept { return (participation().flags & static_cast<uint64_t>(call)) != 0; }
  [[nodiscard]] int32_t argument() const noexcept { return static_cast<int32_t>(participation().flags >> 32); }
  /// The highest rank that has joined, -1: none.
  [[nodiscard]] int32_t joined_rank() const noexcept { return participation().joined - 1; }

 private:
  [[nodiscard]] const collective::Participation& participation() const noexcept {
    return operation_->header().participation;
  }

  std::unique_ptr<collective::BucketOperation> operation_;
};

}  // namespace ddp::parts
