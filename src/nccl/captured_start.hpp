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
  [[nodiscard]] bool begin(Engine& transport, const std::vector<void*>& producers) {
    ready_.clear();
    if (!is_captured(transport)) {
      for (void* const stream : producers) transport.order_after(stream);
      return is_captured(transport);
    }
    for (void* const stream : producers) {
      ready_.emplace_back(transport.device());
      ready_.back().record(stream);
    }
    return true;
  }
  void come(const Engine& transport) {
    for (const gpu::Event& event : ready_) event.hold_back(transport.stream());
    ready_.clear();
  }

 private:
  [[nodiscard]] static bool is_captured(const Engine& transport) {
    return transport.size() > 1 && transport.device().is_capturing(transport.stream());
  }

  std::vector<gpu::Event> ready_;
};

}  // namespace ddp::nccl
