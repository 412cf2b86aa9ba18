// The two halves of a sharded step on a GPU: gradients reduced to slices, and values from their owners to all ranks.
//
// NCCL wants slices of one length, so the bucket's memory holds for each rank its slices one after the other and then zeros,
// as long as the longest. What is packed, updated, gathered and unpacked runs in the order of the communication stream, so
// start() enqueues all of it.
// Tested by gpu_host/fused_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/nccl/bucket.hpp"

namespace ddp::nccl {

/// Where each rank's part of a bucket lies in the bucket's memory.
struct SliceLayout {
  struct Part {
    OwnedSpan span;
    int64_t offset = 0;  // elements, in the bucket's memory
  };
  std::vector<std::vector<Part>> ranks;
  int64_t slice = 0;  // elements of each rank's part, with what fills it up
};

/// `unit`: elements between the possible beginnings of spans.
[[nodiscard]] SliceLayout lay_out(const Ownership& ownership, int64_t unit);

/// Each rank gets the sum of its slice.
class ReduceScatter final : public Operation {
 public:
  ReduceScatter(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
                const collective::ExchangeSpec& spec);
  ~ReduceScatter() override;

  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  [[nodiscard]] std::string describe() const override { return "NCCL, to slices"; }

 private:
  void launch(const collective::BucketHeader& mine) override;
  void settle(const collective::BucketHeader& joined) override;
  void pack(const collective::BucketHeader& mine, double factor);
  void unpack(const collective::BucketHeader* joined, double factor);

  collective::BucketSpec spec_;
  SliceLayout layout_;
  std::byte* memory_ = nullptr;
  std::vector<ddp_gpu_span> spans_;
};

/// Each rank's slice of the values, as its work left them, goes to all. Started when all ranks agree on what is used.
class AllGather final : public Operation {
 public:
  AllGather(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
            const collective::ExchangeSpec& spec);
  ~AllGather() override;

  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "NCCL, from slices"; }

 private:
  void launch(const collective::BucketHeader& mine) override;
  void settle(const collective::BucketHeader&) override {}
  void collect(const collective::BucketHeader& header, size_t rank, bool to_memory);

  collective::ExchangeSpec spec_;
  SliceLayout layout_;
  std::byte* memory_ = nullptr;
  std::vector<ddp_gpu_span> spans_;
};

}  // namespace ddp::nccl
