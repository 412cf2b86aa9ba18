// SPDX-License-Identifier: Apache-2.0
// How a bucket starts while its stream is captured into a CUDA graph.
//
// NCCL registers the memory of a captured collective by itself (NCCL_GRAPH_REGISTER, on by default), including memory of the
// program. With NVLS the hosts of a node's ranks meet for that (ncclShmemAllgather in NCCL's transport/nvls.cc), and
// since 2.28 they look at no abort. So a mark must not make the call, and no rank makes it before all are about to. This
// class keeps the producers' events until then: work that is enqueued with the call comes after the bucket's own gradients,
// not after gradients that were marked meanwhile. Cost: an event for each stream of a bucket in a capture; without one, two
// questions to the runtime. Tested by gpu_host/capture_ranks_test.cpp.
#pragma once

#include <vector>

#include "device/gpu/device.hpp"
#include "nccl/engine.hpp"

namespace ddp::nccl {

class CapturedStart {
 public:
  /// What comes next on the communication stream comes after these streams: at once, or in a capture after come(). Is it
  /// one? The first bucket takes the communication stream into it.
  [[nodiscard]] bool begin(Engine& engine, const std::vector<void*>& producers) {
    ready_.clear();
    is_on_ = false;
    if (!is_captured(engine)) {
      for (void* const stream : producers) engine.order_after(stream);
      return is_on_ = is_captured(engine);
    }
    for (void* const stream : producers) {
      ready_.emplace_back(engine.device());
      ready_.back().record(stream);
    }
    return is_on_ = true;
  }
  /// What begin() returned.
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  void come(const Engine& engine) {
    for (const gpu::Event& event : ready_) event.hold_back(engine.stream());
    ready_.clear();
  }

 private:
  [[nodiscard]] static bool is_captured(const Engine& engine) {
    return engine.size() > 1 && engine.device().is_capturing(engine.stream());
  }

  std::vector<gpu::Event> ready_;
  bool is_on_ = false;
};

}  // namespace ddp::nccl
