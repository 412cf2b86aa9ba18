// SPDX-License-Identifier: Apache-2.0
#include "exchange/gathered.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::collective {
namespace {

constexpr int64_t kWindowBytes = int64_t{8} << 20;  // of all ranks

class Gathered final : public BucketOperation {
 public:
  Gathered(Transport& transport, int32_t rank, const ExchangeSpec& spec)
      : transport_(transport),
        rank_(rank),
        pieces_(spec.pieces),
        ownership_(*spec.ownership),
        work_(spec.work),
        element_(dtype_size(spec.rule.dtype)) {
    const int64_t most = ownership_.most();
    chunk_ = std::min(most, std::max<int64_t>(1, kWindowBytes / (element_ * ownership_.ranks())));
    last_ = chunk_ == 0 ? 0 : (most - 1) % chunk_ + 1;
    chunks_ = chunk_ == 0 ? 0 : (most + chunk_ - 1) / chunk_;
    mine_.resize(static_cast<size_t>(chunk_ * element_));
    all_.resize(mine_.size() * static_cast<size_t>(ownership_.ranks()));
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
    for (int64_t k = 0; k < chunks_ && !header_.is_void(); ++k) {
      each(rank_, k, [&](const OwnedSpan& span, int64_t first, int64_t at, int64_t count) {
        if (!header_.uses(static_cast<size_t>(span.piece))) return;
        if (work_ != nullptr) work_->on_block(span.piece, first, count);
        std::memcpy(mine_.data() + at * element_, place(span.piece, first), static_cast<size_t>(count * element_));
      });
      const int64_t bytes = (k + 1 < chunks_ ? chunk_ : last_) * element_;
      transport_.all_gather(flat_tensor(mine_.data(), DDP_U8, bytes),
                            flat_tensor(all_.data(), DDP_U8, bytes * ownership_.ranks()));
      for (int32_t rank = 0; rank < ownership_.ranks(); ++rank) {
        if (rank == rank_) continue;
        each(rank, k, [&](const OwnedSpan& span, int64_t first, int64_t at, int64_t count) {
          if (!header_.uses(static_cast<size_t>(span.piece))) return;
          std::memcpy(place(span.piece, first), all_.data() + rank * bytes + at * element_,
                      static_cast<size_t>(count * element_));
        });
      }
    }
  }
  [[nodiscard]] bool local_done() const noexcept override { return done_; }
  [[nodiscard]] const BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    pieces_[static_cast<size_t>(piece)].data = data;
    return true;
  }
  [[nodiscard]] std::string describe() const override { return "gathered"; }

 private:
  [[nodiscard]] std::byte* place(int32_t piece, int64_t first) const noexcept {
    return pieces_[static_cast<size_t>(piece)].data + first * element_;
  }
  /// fn(span, first element of its piece, elements from the start of the chunk, count) for what chunk k has of a rank's
  /// slice.
  template <class Fn>
  void each(int32_t rank, int64_t k, const Fn& fn) const {
    const int64_t begin = k * chunk_;
    const int64_t end = begin + chunk_;
    int64_t before = 0;
    for (const OwnedSpan& span : ownership_.slice(rank)) {
      const int64_t from = std::max(begin, before);
      const int64_t to = std::min(end, before + span.count);
      if (from < to) fn(span, span.first + from - before, from - begin, to - from);
      before += span.count;
    }
  }

  Transport& transport_;
  int32_t rank_;
  std::vector<BucketSpec::Piece> pieces_;
  const Ownership& ownership_;
  SliceWork* work_;
  int64_t element_;
  int64_t chunk_ = 0;  // elements of one rank
  int64_t last_ = 0;   // of the last chunk
  int64_t chunks_ = 0;
  std::vector<std::byte> mine_, all_;
  BucketHeader header_;
  bool done_ = true;
};

}  // namespace

std::unique_ptr<BucketOperation> make_gathered(Transport& transport, int32_t rank, const ExchangeSpec& spec) {
  return std::make_unique<Gathered>(transport, rank, spec);
}

}  // namespace ddp::collective
