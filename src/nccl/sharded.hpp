// SPDX-License-Identifier: Apache-2.0
// The two halves of a sharded step on a GPU: gradients reduced to slices, and values from their owners to all ranks.
//
// A rank's slice is a stretch of the bucket's block (core/slices.hpp), so both work in place where gradients, or values, are
// laid out by the library. What is packed, updated, gathered and unpacked runs in the order of the communication stream, so
// start() enqueues all of it.
// Tested by gpu_host/fused_test.cpp and gpu_host/in_place_test.cpp.
#pragma once

#include <memory>

#include "nccl/bucket.hpp"

namespace ddp::nccl {

/// Each rank gets the sum of its slice.
class ReduceScatter final : public Operation {
 public:
  ReduceScatter(Engine& transport, std::unique_ptr<collective::BucketOperation> metadata,
                const collective::ExchangeSpec& spec);
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] std::optional<BlockCollective> uses() const override;
  void launch(const collective::BucketHeader& mine) override;
  void settle(const collective::BucketHeader& joined) override;

  std::unique_ptr<TreeSum> sum_;
};

/// Each rank's slice of the values, as its work left them, goes to all. Started when all ranks agree on what is used.
class AllGather final : public Operation {
 public:
  AllGather(Engine& transport, std::unique_ptr<collective::BucketOperation> metadata, const collective::ExchangeSpec& spec);
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] std::optional<BlockCollective> uses() const override;
  void launch(const collective::BucketHeader& mine) override;
  void settle(const collective::BucketHeader&) override {}
};

}  // namespace ddp::nccl
