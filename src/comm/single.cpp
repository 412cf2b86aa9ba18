#include "comm/single.hpp"

#include <cstring>

#include "comm/heap.hpp"

namespace ddp {
namespace {

class SingleOperation final : public BucketOperation {
 public:
  explicit SingleOperation(const BucketSpec& spec) { note_.used.resize(spec.used_words()); }
  void start(const Note& mine) override { note_ = mine; }
  [[nodiscard]] Progress advance(int64_t) override { return Progress::kDone; }
  void finish() override {}
  [[nodiscard]] bool share_done() const noexcept override { return true; }
  [[nodiscard]] const Note& note() const noexcept override { return note_; }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string way() const override { return "one rank"; }

 private:
  Note note_;
};

/// One rank owns everything: its work is all there is.
class SinglePublication final : public BucketOperation {
 public:
  explicit SinglePublication(const PublishSpec& spec) : spec_(spec) { note_.used.resize((spec.pieces.size() + 63) / 64); }
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
    for (const OwnedSpan& span : spec_.slices->front())
      if (!note_.is_void() && (note_.used[static_cast<size_t>(span.piece) / 64] >> (span.piece % 64) & 1) != 0)
        spec_.work->on_block(span.piece, span.first, span.count);
  }
  [[nodiscard]] bool share_done() const noexcept override { return done_; }
  [[nodiscard]] const Note& note() const noexcept override { return note_; }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string way() const override { return "one rank"; }

 private:
  PublishSpec spec_;
  Note note_;
  bool done_ = true;
};

class SingleTransport final : public Transport {
 public:
  [[nodiscard]] ddp_backend backend() const noexcept override { return DDP_BACKEND_AUTO; }
  [[nodiscard]] bool pollable() const noexcept override { return true; }

  [[nodiscard]] std::shared_ptr<Arena> arena() const noexcept override { return heap_; }

  [[nodiscard]] std::unique_ptr<BucketOperation> prepare(const BucketSpec& spec) override {
    return std::make_unique<SingleOperation>(spec);
  }
  [[nodiscard]] std::unique_ptr<BucketOperation> prepare_scatter(const BucketSpec&, const Slices&, SliceWork*) override { return nullptr; }
  [[nodiscard]] std::unique_ptr<BucketOperation> prepare_publish(const PublishSpec& spec) override {
    return std::make_unique<SinglePublication>(spec);
  }
  void barrier() override {}
  void all_reduce(const Tensor&, ddp_reduce, Rounding) override {}
  void all_gather(const Tensor& input, const Tensor& output) override { copy_bytes(input, output); }
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce) override { copy_bytes(input, output); }
  void broadcast(const Tensor&, int32_t) override {}
  void wake() noexcept override {}

 private:
  static void copy_bytes(const Tensor& input, const Tensor& output) {
    if (input.data != output.data && output.bytes() > 0)
      std::memmove(output.data, input.data, static_cast<size_t>(output.bytes()));
  }

  std::shared_ptr<Heap> heap_ = std::make_shared<Heap>();
};

}  // namespace

std::unique_ptr<Transport> make_single_transport() { return std::make_unique<SingleTransport>(); }

}  // namespace ddp
