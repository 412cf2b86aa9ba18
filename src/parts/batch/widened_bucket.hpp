// SPDX-License-Identifier: Apache-2.0
// A bucket of 16-bit gradients whose ranks hold sums of several parts (partial_sums.hpp): it is reduced as F32, in arrays of
// its own, and the result is rounded once into the gradients.
// Threads: as BucketOperation.
// Tested by conformance/virtual_ranks_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "exchange/transport.hpp"
#include "parts/batch/partial_sums.hpp"

namespace ddp::parts {

class WidenedBucket final : public collective::BucketOperation {
 public:
  /// What is asked of the transport in the place of `spec`.
  [[nodiscard]] static collective::BucketSpec widen(collective::BucketSpec spec, const PartialSums& sums) {
    const auto bucket = static_cast<size_t>(spec.index);
    spec.rule.dtype = spec.rule.carry_dtype();
    spec.rule.summed = true;
    for (size_t piece = 0; piece < spec.pieces.size(); ++piece) {
      spec.pieces[piece].data = sums.widened(bucket, piece);
      spec.pieces[piece].owned = true;
    }
    return spec;
  }
  /// `exchange`: of widen(). `sums` outlives this.
  WidenedBucket(std::unique_ptr<collective::BucketOperation> exchange, const PartialSums& sums, size_t bucket, size_t pieces)
      : exchange_(std::move(exchange)), sums_(sums), bucket_(bucket), pieces_(pieces) {}

  void start(const collective::BucketHeader& mine) override {
    is_narrow_ = false;
    exchange_->start(mine);
  }
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override {
    const collective::Progress progress = exchange_->advance(budget_bytes);
    if (progress == collective::Progress::kDone) narrow();
    return progress;
  }
  void finish() override {
    exchange_->finish();
    narrow();
  }
  [[nodiscard]] bool local_done() const noexcept override { return exchange_->local_done(); }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return exchange_->header(); }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return exchange_->describe() + ", summed as F32"; }

 private:
  void narrow() noexcept {
    if (std::exchange(is_narrow_, true) || header().is_void()) return;
    for (size_t piece = 0; piece < pieces_; ++piece)
      if (header().uses(piece)) sums_.narrow(bucket_, piece);
  }

  const std::unique_ptr<collective::BucketOperation> exchange_;
  const PartialSums& sums_;
  const size_t bucket_;
  const size_t pieces_;
  bool is_narrow_ = true;
};

}  // namespace ddp::parts
