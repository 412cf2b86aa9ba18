// SPDX-License-Identifier: Apache-2.0
// A sharded step within the pass as one kernel that reaches all ranks by multicast (multicast.hpp): it reads the sum of the
// gradients in the own slice, updates, and writes the values to all ranks. It is enqueued when the bucket is complete, as
// a collective: on all ranks, in the order of the plan.
// Sums have the order of the hardware: the same bits on all ranks, but not those of NCCL or of the CPU.
// Tested by gpu_host/multicast_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "collective/nccl/bucket.hpp"
#include "collective/nccl/multicast.hpp"

namespace ddp::nccl {

class FusedStep final : public Operation {
 public:
  /// What of the bucket such a kernel would work on.
  [[nodiscard]] static Multicast::Blocks blocks_of(const collective::ExchangeSpec& spec) noexcept;

  FusedStep(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
            const collective::ExchangeSpec& spec, const ddp_gpu_multicast& over);
  [[nodiscard]] std::string describe() const override { return "one kernel over multicast"; }

 private:
  [[nodiscard]] std::optional<BlockCollective> uses() const override { return std::nullopt; }
  void launch(const collective::BucketHeader& mine) override;
  void settle(const collective::BucketHeader&) override {}

  const ddp_gpu_multicast over_;
};

}  // namespace ddp::nccl
