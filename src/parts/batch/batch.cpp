// SPDX-License-Identifier: Apache-2.0
#include "parts/batch/batch.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "exchange/transport.hpp"
#include "parts/batch/partial_sums.hpp"

namespace ddp::parts {
namespace {

// A bucket of 16-bit gradients whose ranks hold sums of several parts (partial_sums.hpp): it is reduced as F32, in arrays of
// its own, and the result is rounded once into the gradients.
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

}  // namespace

Batch::Batch(const group::Channel& channel, const Parameters& table, const Plan& plan, uint64_t plan_hash,
             const pass::BucketRules& rules, bool uneven)
    : channel_(channel),
      plan_(plan),
      parts_(channel.group(), table, plan, rules.of(plan)),
      attendance_(channel.group(), &channel, uneven ? std::make_unique<JoinHeader>(channel, plan_hash) : nullptr) {}

pass::Traits Batch::traits() const noexcept {
  pass::Traits traits;
  traits.uneven = attendance_.is_uneven();
  for (size_t bucket = 0; parts_.sums() != nullptr && bucket < plan_.size(); ++bucket)
    traits.reduces_copies = traits.reduces_copies || is_widened(bucket);
  return traits;
}

void Batch::describe(collective::BucketSpec& spec) const {
  spec.rule.summed = parts_.sums() != nullptr && !is_widened(static_cast<size_t>(spec.index));
}

std::unique_ptr<collective::BucketOperation> Batch::prepare(const collective::BucketSpec& spec) {
  const auto bucket = static_cast<size_t>(spec.index);
  if (!is_widened(bucket)) return nullptr;
  const PartialSums& sums = *parts_.sums();
  return std::make_unique<WidenedBucket>(channel_.prepare(WidenedBucket::widen(spec, sums)), sums, bucket,
                                         spec.pieces.size());
}

void Batch::require(ddp_pass mode, pass::Role) const { parts_.require(mode); }

void Batch::begin(pass::Opening& opening) { attendance_.begin(opening.role); }

void Batch::opened(const pass::Opening& opening) {
  if (opening.mode == DDP_PASS_REDUCE) attendance_.announce_pass(opening.queue);
}

void Batch::fill(size_t bucket, collective::BucketHeader& mine) noexcept {
  const collective::Participation last = attendance_.mine(parts_.position());
  if (last.contributors == 0) std::fill(mine.used.begin(), mine.used.end(), 0);
  mine.participation = parts_.join(last);
  mine.incomplete = mine.incomplete || parts_.missing().has_value();
  const std::vector<PlannedPiece>& pieces = plan_[bucket].pieces;
  if (!parts_.is_first())
    for (size_t piece = 0; piece < pieces.size(); ++piece)
      if (parts_.uses(pieces[piece].parameter)) mine.used[piece / 64] |= uint64_t{1} << (piece % 64);
  if (!mine.incomplete) parts_.finish(bucket, last);
}

bool Batch::conclude(const pass::Verdict& verdict) {
  attendance_.end(verdict.all);
  return true;
}

void Batch::add_missing(pass::MissingGradients& mine) const {
  if (parts_.are_shared()) mine.virtual_rank = parts_.position();
  if (parts_.missing().has_value()) mine = *parts_.missing();
}

void Batch::end_part(const pass::Marks& marks, pass::MissingGradients missing) {
  if (missing.missing > 0 || !missing.reason.empty())
    parts_.close_void(std::move(missing));
  else
    parts_.close(attendance_.mine(parts_.position()), marks);
}

void Batch::closed(const pass::Closing& closing) noexcept {
  if (closing.mode == DDP_PASS_REDUCE) parts_.end_step(closing.outcome != pass::Outcome::kGood);
}

void Batch::changed(pass::Change what) noexcept {
  if (what == pass::Change::kBuffers) parts_.restart();
}

}  // namespace ddp::parts
