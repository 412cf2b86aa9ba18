// SPDX-License-Identifier: Apache-2.0
#include "exchange/single.hpp"

#include <cstring>
#include <utility>

#include "exchange/host_allocator.hpp"

namespace ddp::collective {
namespace {

/// One rank owns everything: its work is all there is.
class SingleExchange final : public BucketOperation {
 public:
  explicit SingleExchange(const ExchangeSpec& spec)
      : ownership_(spec.ownership), work_(spec.work), rule_(spec.rule), collects_(spec.collects), pieces_(spec.pieces) {
    header_.used.resize(spec.used_words());
  }
  void start(const BucketHeader& mine) override {
    header_ = mine;
    done_ = false;
  }
  [[nodiscard]] Progress advance(int64_t) override {
    finish();
    return Progress::kDone;
  }
  void finish() override {
    if (done_) return;
    done_ = true;
    if (header_.is_void()) return;
    if (collects_ && rule_.summed) form_mean();
    if (!work_) return;
    for (const OwnedSpan& span : ownership_->slice(0))
      if (header_.uses(static_cast<size_t>(span.piece))) work_.on_block(span.piece, span.first, span.count);
  }
  [[nodiscard]] bool local_done() const noexcept override { return done_; }
  [[nodiscard]] const BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    pieces_[static_cast<size_t>(piece)].data = data;
    return true;
  }
  [[nodiscard]] std::string describe() const override { return "one rank"; }

 private:
  /// A rank's own gradient is its mean; the sum of several parts is not.
  void form_mean() noexcept {
    rule_.weight_sum = header_.participation.weight;
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      const void* const in = pieces_[piece].data;
      void* const out = pieces_[piece].data;
      if (header_.uses(piece)) cpu::reduce(rule_, &in, 1, &out, 1, pieces_[piece].count);
    }
  }

  const Ownership* ownership_;
  SliceWork work_;
  cpu::ReduceRule rule_;
  const bool collects_;
  std::vector<BucketSpec::Piece> pieces_;
  BucketHeader header_;
  bool done_ = true;
};

class SingleTransport final : public Transport {
 public:
  explicit SingleTransport(std::shared_ptr<Arena> arena) : heap_(std::move(arena)) {}

  [[nodiscard]] ddp_backend backend() const noexcept override { return DDP_BACKEND_AUTO; }
  [[nodiscard]] bool pollable() const noexcept override { return true; }

  [[nodiscard]] std::shared_ptr<Arena> arena() const noexcept override { return heap_; }

  [[nodiscard]] bool can(Collective, bool) const noexcept override { return true; }
  [[nodiscard]] std::unique_ptr<Transport> open_channel(int32_t) override { return make_single_transport(heap_); }
  [[nodiscard]] std::unique_ptr<BucketOperation> prepare(const ExchangeSpec& spec) override {
    return std::make_unique<SingleExchange>(spec);
  }
  void meet(const Stamp&) override {}
  void reduce(const Tensor&, ddp_reduce, int32_t, void*) override {}
  void all_gather(const Tensor& input, const Tensor& output, void*) override { copy_bytes(input, output); }
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce, void*) override { copy_bytes(input, output); }
  void broadcast(const Tensor&, int32_t, void*) override {}
  void wake() noexcept override {}

 private:
  static void copy_bytes(const Tensor& input, const Tensor& output) {
    if (input.data != output.data && output.bytes() > 0)
      std::memmove(output.data, input.data, static_cast<size_t>(output.bytes()));
  }

  const std::shared_ptr<Arena> heap_;
};

}  // namespace

std::unique_ptr<Transport> make_single_transport(std::shared_ptr<Arena> arena) {
  return std::make_unique<SingleTransport>(arena != nullptr ? std::move(arena) : std::make_shared<HostAllocator>());
}

}  // namespace ddp::collective
