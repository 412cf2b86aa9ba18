// The two halves of a sharded step on a GPU: gradients reduced to slices, and values from their owners to all ranks.
//
// NCCL wants slices of one length, so the bucket's memory holds for each rank its slices one after the other and then zeros, as long as the
// longest. What is packed, updated, gathered and unpacked runs in the order of the communication stream, so start() enqueues all of it.
// Tested by gpu_host/fused_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/nccl/bucket.hpp"

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
class Scatter final : public Operation {
 public:
  Scatter(Side& side, std::unique_ptr<BucketOperation> words, const ExchangeSpec& spec);
  ~Scatter() override;

  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  [[nodiscard]] std::string way() const override { return "NCCL, to slices"; }

 private:
  void launch(const Note& mine) override;
  void settle(const Note& joined) override;
  void pack(const Note& mine, double factor);
  void unpack(const Note* joined, double factor);

  BucketSpec spec_;
  SliceLayout layout_;
  std::byte* memory_ = nullptr;
  std::vector<ddp_gpu_span> spans_;
};

/// Each rank's slice of the values, as its work left them, goes to all. Started when all ranks agree on what is used.
class Publication final : public Operation {
 public:
  Publication(Side& side, std::unique_ptr<BucketOperation> words, const ExchangeSpec& spec);
  ~Publication() override;

  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string way() const override { return "NCCL, from slices"; }

 private:
  void launch(const Note& mine) override;
  void settle(const Note&) override {}
  void collect(const Note& note, size_t rank, bool to_memory);

  ExchangeSpec spec_;
  SliceLayout layout_;
  std::byte* memory_ = nullptr;
  std::vector<ddp_gpu_span> spans_;
};

}  // namespace ddp::nccl
