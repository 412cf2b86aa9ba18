// SPDX-License-Identifier: Apache-2.0
#include "nccl/bucket.hpp"

#include <algorithm>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "core/plan.hpp"
#include "nccl/capture_bits.hpp"

namespace ddp::nccl {
namespace {

constexpr size_t kMostWords = kMostPieces / 64;  // of used bits that a transport takes

}  // namespace

HeaderWords HeaderWords::of(const collective::BucketSpec& spec, int32_t ranks) noexcept {
  HeaderWords words{spec.used_words(), spec.used_words(), spec.used_words()};
  if (words.order + 1 <= kMostWords) words.captures = words.end = words.order + 1;
  if (words.has_order() && words.captures + capture_words(ranks) <= kMostWords)
    words.end = words.captures + capture_words(ranks);
  return words;
}

collective::BucketSpec metadata_of(const collective::ExchangeSpec& spec, int32_t ranks) {
  collective::BucketSpec metadata = spec;
  metadata.on_gpu = false;
  metadata.rule.wire = cpu::ReduceRule::kAsItIs;
  metadata.plan_hash ^=
      static_cast<uint64_t>(spec.kind()) * 0x9e3779b97f4a7c15u;  // so that ranks which do different things find out
  for (collective::BucketSpec::Piece& piece : metadata.pieces) piece = collective::BucketSpec::Piece{nullptr, 0, false};
  const HeaderWords words = HeaderWords::of(spec, ranks);
  if (words.has_order()) metadata.pieces.resize(words.end * 64);
  return metadata;
}

std::byte* block_of(const std::vector<collective::BucketSpec::Piece>& pieces, ddp_dtype dtype) noexcept {
  const auto owned = [](const collective::BucketSpec::Piece& piece) { return piece.owned; };
  if (pieces.empty() || !std::all_of(pieces.begin(), pieces.end(), owned)) return nullptr;
  return pieces.front().data - pieces.front().offset * dtype_size(dtype);
}

Block::Block(Engine& engine, const collective::ExchangeSpec& spec, ddp_dtype dtype, bool kept)
    : engine_(engine), dtype_(dtype), count_(spec.count), ranks_(engine.size()) {
  if (ranks_ == 1 || count_ == 0) return;
  const bool fits = !kept && dtype == spec.rule.dtype;
  if (fits && spec.dense && spec.kind() == collective::Collective::kBucket && engine.tree() == nullptr) {
    lie_on(spec);
    return;
  }
  data_ = fits ? block_of(spec.pieces, dtype) : nullptr;
  in_place_ = data_ != nullptr;
  if (in_place_) return;
  kept_ = kept;
  const int64_t bytes = count_ * dtype_size(dtype);
  data_ = static_cast<std::byte*>(kept ? engine.alloc(bytes) : engine.staging(std::max(bytes, spec.largest_bytes)));
}

/// NCCL's sum is the same at any position of a gradient.
void Block::lie_on(const collective::ExchangeSpec& spec) noexcept {
  in_place_ = true;
  count_ = 0;
  for (const collective::BucketSpec::Piece& piece : spec.pieces) {
    if (piece.count > 0 && (data_ == nullptr || piece.data < data_)) data_ = piece.data;
    count_ += piece.count;
  }
}

Block::~Block() {
  if (kept_) engine_.free(data_);
}

Operation::Operation(Engine& engine, std::unique_ptr<collective::BucketOperation> metadata,
                     const collective::ExchangeSpec& spec)
    : engine_(engine),
      metadata_(std::move(metadata)),
      spec_(spec),
      adder_(engine.tree() != nullptr ? Adder::kTree : Adder::kNccl),
      block_(engine, spec, spec.collects ? travel_dtype(spec.rule, adder_) : spec.rule.dtype,
             spec.collects && spec.partial_allowed),
      words_(HeaderWords::of(spec, engine.size())),
      timed_(engine.device(), engine.stream(), static_cast<uint32_t>(spec.index)) {
  if (spec.collects && adder_ == Adder::kTree && !block_.is_empty())
    sum_ = std::make_unique<TreeSum>(engine, TreeSum::Shape{spec.rule, block_.slice_count()});
  mine_.used.resize(words_.end);
  spans_.reserve(spec.pieces.size() + 1);  // an own slice in the middle of a piece leaves two parts of it
}

void Operation::start(const collective::BucketHeader& mine) {
  state_.settled = Settled::kNo;
  mine_.incomplete = mine.incomplete;
  mine_.participation = mine.participation;
  std::copy(mine.used.begin(), mine.used.end(), mine_.used.begin());
  attempt([&] {
    if (!capture_.begin(engine_, producers_)) launch(mine_);
  });
  producers_.clear();
  if (!announces_late()) announce(engine_.order_word(capture_.is_on() ? Engine::At::kNow : Engine::At::kLastCollective));
}

void Operation::announce(uint64_t order_word) {
  if (words_.has_order()) mine_.used[words_.order] = problem_ ? 0 : order_word;
  if (words_.has_captures()) {
    const auto rank = static_cast<size_t>(engine_.rank());
    std::fill(mine_.used.begin() + static_cast<std::ptrdiff_t>(words_.captures), mine_.used.end(), 0);
    if (capture_.is_on()) mine_.used[words_.captures + rank / 64] = uint64_t{1} << (rank % 64);
  }
  metadata_->start(mine_);
}

/// Before the capturing ranks call NCCL, and before any rank waits for it.
void Operation::compare_ranks() const {
  const std::vector<uint64_t>& used = metadata_->header().used;
  if (words_.has_captures())
    if (const auto unlike = unlike_ranks(&used[words_.captures], engine_.size()))
      throw capture_mismatch(engine_.control(), *unlike,
                             spec_.kind() == collective::Collective::kBucketAllGather
                                 ? "ddp_optimizer_step"
                                 : "the pass that ends in ddp_model_end_backward");
  if (words_.has_order() && LaunchOrder::differs(used[words_.order])) throw order_mismatch("a backward pass");
}

/// A bucket on the host has its place among the messages, so it must not come between those of the others.
bool Operation::announces_late() const noexcept { return capture_.is_on() && spec_.all_on_gpu; }

template <class Body>
void Operation::attempt(Body&& body) {
  problem_ = try_to(body);
  timed_.end();
  if (problem_) engine_.end_sequence();
}

collective::Progress Operation::advance(int64_t budget_bytes) {
  if (capture_.is_on()) return collective::Progress::kWaiting;  // for finish(), which comes in the order of all ranks
  const collective::Progress progress = metadata_->advance(budget_bytes);
  if (progress == collective::Progress::kDone) settle_once();
  return progress;
}

void Operation::finish() {
  throw_problem();  // the others wait for what did not come
  if (announces_late()) announce(engine_.order_word());
  metadata_->finish();
  settle_once();
}

void Operation::throw_problem() const {
  if (!problem_) return;
  if (engine_.size() == 1 || breaks_group(problem_->status())) throw Error(*problem_);
  throw Error(DDP_ERROR_ABORTED,
              "the pass cannot go on, because another rank is waiting for this one inside NCCL: " + problem_->text());
}

void Operation::settle_once() {
  if (state_.settled != Settled::kNo) return;
  state_.settled = Settled::kYes;
  throw_problem();
  compare_ranks();
  if (capture_.is_on())
    attempt([&] {
      capture_.come(engine_);
      launch(mine_);
    });
  throw_problem();
  if (writes_unused()) {
    state_.settled = Settled::kButUnused;
    return;
  }
  settle(metadata_->header());
  timed_.end();
}

/// Is something written that this rank does not contribute?
bool Operation::writes_unused() const noexcept {
  if (!spec_.collects || !spec_.partial_allowed || block_.is_empty()) return false;
  for (size_t piece = 0; piece < spec_.pieces.size(); ++piece)
    if (metadata_->header().uses(piece) && !mine_.uses(piece)) return true;
  return false;
}

void Operation::write_unused(void* stream) {
  if (state_.settled != Settled::kButUnused) return;
  state_.settled = Settled::kYes;
  engine_.order_after(stream);
  settle(metadata_->header());
  timed_.end();
}

/// Gradients in one block do not move: the model refuses that.
bool Operation::set_address(int32_t piece, std::byte* data) noexcept {
  if (spec_.collects) spec_.pieces[static_cast<size_t>(piece)].data = data;  // else they are values
  return true;
}

double Operation::leave_sum(bool may) noexcept {
  state_.leaves_sum = may && block_.is_in_place() && !factors_of(spec_.rule, 1, adder_).after.is_one();
  return state_.leaves_sum ? spec_.rule.divisor : 1;
}

void Operation::prepare_use() {
  const std::optional<BlockCollective> wanted = block_.is_empty() ? std::nullopt : uses();
  if (wanted && block_.is_in_place() && engine_.communicator().first_uses().is_first(*wanted))
    unused_ = gpu::Array(engine_.device(), block_.count() * dtype_size(block_.dtype()), "connecting the ranks");
}

void Operation::use_once() {
  const std::optional<BlockCollective> wanted = block_.is_empty() ? std::nullopt : uses();
  if (wanted && !engine_.device().is_capturing(engine_.stream())) {  // else there may be no communicator
    Communicator& communicator = engine_.communicator();
    if (communicator.first_uses().is_first(*wanted)) {
      communicator.first_uses().add(*wanted);
      communicator.run(*wanted, block_.is_in_place() ? unused_.data() : block_.data(), engine_.rank(), engine_.stream());
    }
  }
  // Memory that a late rank may still write to stays until this operation ends, which is after the group has broken.
  if (unused_.data() != nullptr && engine_.is_done_in_time()) unused_ = gpu::Array();
}

Range Operation::own() const noexcept {
  const int64_t begin = engine_.rank() * block_.slice_count();
  return Range{begin, begin + block_.slice_count()};
}

template <class Fn>
void Operation::each_part(const Range& range, const Fn& fn) const {
  const int64_t size = dtype_size(spec_.rule.dtype);
  for (size_t k = 0; k < spec_.pieces.size(); ++k) {
    const collective::BucketSpec::Piece& piece = spec_.pieces[k];
    const int64_t begin = std::max(range.begin, piece.offset), end = std::min(range.end, piece.offset + piece.count);
    if (begin < end) fn(k, piece.data + (begin - piece.offset) * size, block_.at(begin), end - begin);
  }
}

void Operation::pack(const collective::BucketHeader& mine, const Scale& by) {
  spans_.clear();
  each_part(Range{0, block_.count()}, [&](size_t piece, std::byte* data, std::byte* place, int64_t count) {
    const bool contributes = mine.participation.contributors > 0 && mine.uses(piece);
    spans_.push_back(ddp_gpu_span{contributes ? data : nullptr, place, count});
  });
  move(trace::GpuWork::kPack, {spec_.rule.dtype, block_.dtype(), by}, nullptr, "packing a bucket");
}

void Operation::fill(const collective::BucketHeader& mine, const Scale& by) {
  if (!block_.is_in_place()) return pack(mine, by);
  if (mine.participation.contributors > 0) return scale(Range{0, block_.count()}, by);
  time(trace::GpuWork::kPack);
  engine_.device().zero(block_.data(), block_.count() * dtype_size(block_.dtype()), engine_.stream());
}

void Operation::unpack(std::initializer_list<Range> ranges, const collective::BucketHeader* joined, const Scale& by) {
  spans_.clear();
  for (const Range& range : ranges)
    each_part(range, [&](size_t piece, std::byte* data, std::byte* place, int64_t count) {
      if (joined == nullptr || joined->uses(piece)) spans_.push_back(ddp_gpu_span{place, data, count});
    });
  if (!spans_.empty())
    move(trace::GpuWork::kUnpack, {block_.dtype(), spec_.rule.dtype, by}, engine_.stop_on(engine_.stream()),
         "writing a bucket back");
}

void Operation::collect(const Range& range, const collective::BucketHeader& uses) {
  spans_.clear();
  each_part(range, [&](size_t piece, std::byte* data, std::byte* place, int64_t count) {
    if (uses.uses(piece)) spans_.push_back(ddp_gpu_span{data, place, count});
  });
  move(trace::GpuWork::kPack, {spec_.rule.dtype, block_.dtype(), {}}, nullptr, "packing parameters");
}

void Operation::scale(const Range& range, const Scale& by) {
  if (by.is_one() || range.begin == range.end) return;
  spans_.assign(1, ddp_gpu_span{block_.at(range.begin), block_.at(range.begin), range.end - range.begin});
  move(trace::GpuWork::kDivide, {block_.dtype(), block_.dtype(), by}, nullptr, "dividing a bucket");
}

void Operation::move(trace::GpuWork work, const Conversion& how, ddp_gpu_stop stop, const char* doing) {
  time(work);
  nccl::move(engine_.device(), spans_, how, stop, engine_.stream(), doing);
}

std::optional<BlockCollective> Operation::uses() const noexcept {
  using Kind = BlockCollective::Kind;
  if (!spec_.collects) return BlockCollective{Kind::kAllGather, block_.slice_count(), block_.dtype()};
  if (sum_ != nullptr) return spec_.gives ? std::optional(sum_->uses()) : std::nullopt;
  if (spec_.gives) return BlockCollective{Kind::kAllReduce, block_.count(), block_.dtype()};
  return BlockCollective{Kind::kReduceScatter, block_.slice_count(), block_.dtype()};
}

void Operation::launch(const collective::BucketHeader& mine) {
  if (!spec_.collects) return gather(mine);
  if (!block_.is_empty()) reduce(mine);
}

void Operation::reduce(const collective::BucketHeader& mine) {
  const Factors factors = factors_of(spec_.rule, mine.participation.weight, adder_);
  if (sum_ == nullptr || mine.participation.contributors > 0) fill(mine, factors.before);
  time(spec_.gives ? trace::GpuWork::kAllReduce : trace::GpuWork::kReduceScatter);
  if (sum_ == nullptr)
    engine_.communicator().run(*uses(), block_.data(), engine_.rank(), engine_.stream());
  else if (spec_.gives)
    sum_->all_reduce(block_.data(), mine.participation);
  else
    sum_->reduce_scatter(block_.data(), mine.participation);
  if (block_.is_in_place() && !state_.leaves_sum) scale(result(), factors.after);
  if (!block_.is_in_place() && !spec_.partial_allowed) unpack({result()}, nullptr, factors.after);
}

/// Started when all ranks agree on what is used.
void Operation::gather(const collective::BucketHeader& mine) {
  if (spec_.work) {
    for (const OwnedSpan& span : spec_.ownership->slice(engine_.rank()))
      if (mine.uses(static_cast<size_t>(span.piece))) spec_.work.on_block(span.piece, span.first, span.count);
    if (spec_.work.flush) spec_.work.flush(engine_.stream());
  }
  if (block_.is_empty()) return;
  if (!block_.is_in_place()) collect(own(), mine);
  time(trace::GpuWork::kAllGather);
  engine_.communicator().run(*uses(), block_.data(), engine_.rank(), engine_.stream());
  if (!block_.is_in_place()) unpack({Range{0, own().begin}, Range{own().end, block_.count()}}, &mine, {});
}

void Operation::settle(const collective::BucketHeader& joined) {
  if (!spec_.collects || block_.is_empty() || !spec_.partial_allowed || joined.is_void()) return;
  unpack({result()}, &joined, late_scale(spec_.rule, joined, adder_));
}

std::string Operation::describe() const {
  if (!spec_.collects || !spec_.gives)
    return std::string(spec_.collects ? "NCCL, to slices, " : "NCCL, from slices, ") +
           (block_.is_in_place() ? "in place" : "copied");
  if (engine_.size() == 1) return "one GPU";
  const std::string way = sum_ != nullptr ? "NCCL, reproducible, " : "NCCL, ";
  if (block_.is_in_place() || sum_ != nullptr || !spec_.rule.is_wired())
    return way + (block_.is_in_place() ? "in place" : "copied");
  return way + "sent as " + dtype_name(spec_.rule.wire);
}

}  // namespace ddp::nccl
