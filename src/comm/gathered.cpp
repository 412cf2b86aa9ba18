#include "comm/gathered.hpp"

#include <algorithm>
#include <cstring>

namespace ddp {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

class Gathered final : public BucketOperation {
 public:
  Gathered(Transport& transport, int32_t rank, const PublishSpec& spec)
      : transport_(transport), rank_(static_cast<size_t>(rank)), pieces_(spec.pieces), slices_(*spec.slices), work_(spec.work),
        element_(dtype_size(spec.dtype)) {
    int64_t most = 0;
    for (const std::vector<OwnedSpan>& slice : slices_) {
      int64_t count = 0;
      for (const OwnedSpan& span : slice) count += span.count;
      most = std::max(most, count);
    }
    chunk_ = std::min(most, kChunkBytes / element_);
    chunks_ = chunk_ == 0 ? 0 : (most + chunk_ - 1) / chunk_;
    mine_.resize(static_cast<size_t>(chunk_ * element_));
    all_.resize(mine_.size() * slices_.size());
    note_.used.resize((pieces_.size() + 63) / 64);
  }

  void start(const Note& mine) override {
    note_ = mine;
    done_ = false;
  }
  [[nodiscard]] Progress advance(int64_t) override {
    finish();
    return Progress::kDone;
  }
  void finish() override {
    if (done_) return;
    done_ = true;
    for (int64_t k = 0; k < chunks_ && !note_.is_void(); ++k) {
      each(rank_, k, [&](const OwnedSpan& span, int64_t first, int64_t at, int64_t count) {
        if (!is_used(span.piece)) return;
        work_->on_block(span.piece, first, count);
        std::memcpy(mine_.data() + at * element_, place(span.piece, first), static_cast<size_t>(count * element_));
      });
      const auto bytes = static_cast<int64_t>(mine_.size());
      transport_.all_gather(flat_tensor(mine_.data(), DDP_U8, bytes),
                            flat_tensor(all_.data(), DDP_U8, bytes * static_cast<int64_t>(slices_.size())));
      for (size_t rank = 0; rank < slices_.size(); ++rank) {
        if (rank == rank_) continue;
        each(rank, k, [&](const OwnedSpan& span, int64_t first, int64_t at, int64_t count) {
          if (!is_used(span.piece)) return;
          std::memcpy(place(span.piece, first), all_.data() + rank * mine_.size() + static_cast<size_t>(at * element_),
                      static_cast<size_t>(count * element_));
        });
      }
    }
  }
  [[nodiscard]] bool share_done() const noexcept override { return done_; }
  [[nodiscard]] const Note& note() const noexcept override { return note_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    pieces_[static_cast<size_t>(piece)].data = data;
    return true;
  }
  [[nodiscard]] std::string way() const override { return "gathered"; }

 private:
  [[nodiscard]] bool is_used(int32_t piece) const noexcept {
    return (note_.used[static_cast<size_t>(piece) / 64] >> (piece % 64) & 1) != 0;
  }
  [[nodiscard]] std::byte* place(int32_t piece, int64_t first) const noexcept {
    return pieces_[static_cast<size_t>(piece)].data + first * element_;
  }
  /// fn(span, first element of its piece, elements from the start of the chunk, count) for what chunk k has of a rank's slice.
  template <class Fn>
  void each(size_t rank, int64_t k, const Fn& fn) const {
    const int64_t begin = k * chunk_;
    const int64_t end = begin + chunk_;
    int64_t before = 0;
    for (const OwnedSpan& span : slices_[rank]) {
      const int64_t from = std::max(begin, before);
      const int64_t to = std::min(end, before + span.count);
      if (from < to) fn(span, span.first + from - before, from - begin, to - from);
      before += span.count;
    }
  }

  Transport& transport_;
  size_t rank_;
  std::vector<BucketSpec::Piece> pieces_;
  const Slices& slices_;
  SliceWork* work_;
  int64_t element_;
  int64_t chunk_ = 0;  // elements of one rank
  int64_t chunks_ = 0;
  std::vector<std::byte> mine_, all_;
  Note note_;
  bool done_ = true;
};

}  // namespace

std::unique_ptr<BucketOperation> make_gathered_publication(Transport& transport, int32_t rank, const PublishSpec& spec) {
  return std::make_unique<Gathered>(transport, rank, spec);
}

}  // namespace ddp
