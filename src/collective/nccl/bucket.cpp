#include "collective/nccl/bucket.hpp"

#include <algorithm>
#include <limits>

#include "core/attempt.hpp"
#include "core/error.hpp"

namespace ddp::nccl {
namespace {

// Bytes between the beginnings of pieces: as in the library's own memory (core/plan.cpp), because one rank may reduce there
// and another through a copy, and NCCL wants the same number of elements from both.
constexpr int64_t kAlignment = 64;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// One block of the library's memory with zeros between the pieces?
bool is_one_block(const collective::BucketSpec& spec) noexcept {
  return !spec.pieces.empty() && std::all_of(spec.pieces.begin(), spec.pieces.end(),
                                             [](const collective::BucketSpec::Piece& piece) { return piece.owned; });
}

}  // namespace

collective::BucketSpec metadata_of(const collective::ExchangeSpec& spec) {
  collective::BucketSpec metadata = spec;
  metadata.on_gpu = false;
  metadata.rule.wire = cpu::ReduceRule::kAsItIs;
  metadata.plan_hash ^=
      static_cast<uint64_t>(spec.kind()) * 0x9e3779b97f4a7c15u;  // so that ranks which do different things find out
  for (collective::BucketSpec::Piece& piece : metadata.pieces) piece = collective::BucketSpec::Piece{nullptr, 0, false};
  return metadata;
}

void Operation::start(const collective::BucketHeader& mine) {
  settled_ = false;
  problem_ = try_to([&] {
    for (void* const stream : producers_) transport_.order_after(stream);
    launch(mine);
  });
  producers_.clear();
  metadata_->start(mine);
}

collective::Progress Operation::advance(int64_t budget_bytes) {
  const collective::Progress progress = metadata_->advance(budget_bytes);
  if (progress == collective::Progress::kDone) settle_once();
  return progress;
}

void Operation::finish() {
  if (problem_) settle_once();  // the others wait in NCCL for what did not come
  metadata_->finish();
  settle_once();
}

void Operation::settle_once() {
  if (settled_) return;
  settled_ = true;
  if (problem_ && (transport_.size() == 1 || breaks_group(problem_->status()))) throw Error(*problem_);
  if (problem_)
    throw Error(DDP_ERROR_ABORTED,
                "the pass cannot go on, because another rank is waiting for this one inside NCCL: " + problem_->text());
  settle(metadata_->header());
}

void Operation::move(const std::vector<ddp_gpu_span>& spans, ddp_dtype from, ddp_dtype to, double factor, ddp_gpu_stop stop,
                     const char* doing) const {
  if (spans.empty()) return;
  const gpu::Device& device = transport_.device();
  const gpu::Device::Current current(device);
  device.check(device.table().move(spans.data(), static_cast<int64_t>(spans.size()), from, to, factor, kNoLimit, stop,
                                   transport_.stream()),
               doing);
}

Bucket::Bucket(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
               const collective::BucketSpec& spec)
    : Operation(transport, std::move(metadata)), spec_(spec) {
  const int64_t unit = kAlignment / dtype_size(travel_dtype(spec.rule));
  for (const collective::BucketSpec::Piece& piece : spec.pieces) {
    offsets_.push_back((count_ + unit - 1) / unit * unit);
    count_ = offsets_.back() + piece.count;
  }
  spans_.reserve(spec.pieces.size());
  in_place_ = is_one_block(spec) && !spec.partial_allowed && !spec.rule.is_wired();
  if (transport.size() > 1 && !in_place_ && count_ > 0)
    memory_ = static_cast<std::byte*>(transport.alloc(count_ * dtype_size(travel_dtype(spec.rule))));
}

Bucket::~Bucket() {
  if (memory_ != nullptr) transport().free(memory_);
}

void Bucket::launch(const collective::BucketHeader& mine) {
  if (transport().size() == 1 || count_ == 0) return;
  if (in_place_)
    reduce_in_place(mine);
  else
    reduce_copy(mine);
}

void Bucket::reduce_in_place(const collective::BucketHeader& mine) {
  const Factors factors = factors_of(spec_.rule, mine.participation.weight);
  std::byte* const block = spec_.pieces.front().data;
  const ddp_dtype dtype = spec_.rule.dtype;
  spans_.assign(1, ddp_gpu_span{block, block, count_});
  if (mine.participation.contributors == 0)
    transport().device().zero(block, count_ * dtype_size(dtype), transport().stream());
  else if (factors.before != 1)
    move(spans_, dtype, dtype, factors.before, nullptr, "dividing a bucket");
  transport().communicator().all_reduce(block, block, count_, dtype, DDP_GPU_SUM, transport().stream());
  if (factors.after != 1)
    move(spans_, dtype, dtype, factors.after, transport().stop_on(transport().stream()), "dividing a bucket");
}

void Bucket::reduce_copy(const collective::BucketHeader& mine) {
  const Factors factors = factors_of(spec_.rule, mine.participation.weight);
  const ddp_dtype wire = travel_dtype(spec_.rule);
  spans_.clear();
  for (size_t piece = 0; piece < spec_.pieces.size(); ++piece) {
    const bool contributes = mine.participation.contributors > 0 && mine.uses(piece);
    if (spec_.pieces[piece].count > 0)
      spans_.push_back(ddp_gpu_span{contributes ? spec_.pieces[piece].data : nullptr,
                                    memory_ + offsets_[piece] * dtype_size(wire), spec_.pieces[piece].count});
  }
  move(spans_, spec_.rule.dtype, wire, factors.before, nullptr, "packing a bucket");
  transport().communicator().all_reduce(memory_, memory_, count_, wire, DDP_GPU_SUM, transport().stream());
  if (!spec_.partial_allowed) unpack(nullptr, factors.after);
}

/// `joined`: only what some rank has contributed; NULL: everything.
void Bucket::unpack(const collective::BucketHeader* joined, double factor) {
  const ddp_dtype wire = travel_dtype(spec_.rule);
  spans_.clear();
  for (size_t piece = 0; piece < spec_.pieces.size(); ++piece)
    if (spec_.pieces[piece].count > 0 && (joined == nullptr || joined->uses(piece)))
      spans_.push_back(
          ddp_gpu_span{memory_ + offsets_[piece] * dtype_size(wire), spec_.pieces[piece].data, spec_.pieces[piece].count});
  move(spans_, wire, spec_.rule.dtype, factor, transport().stop_on(transport().stream()), "writing a bucket back");
}

void Bucket::settle(const collective::BucketHeader& joined) {
  if (transport().size() == 1 || !spec_.partial_allowed || joined.is_void()) return;
  unpack(&joined, late_factor(spec_.rule, joined));
}

bool Bucket::set_address(int32_t piece, std::byte* data) noexcept {
  spec_.pieces[static_cast<size_t>(piece)].data = data;
  return true;  // owned pieces do not move: the model refuses that
}

std::string Bucket::describe() const {
  if (transport().size() == 1) return "one GPU";
  return in_place_               ? "NCCL, in place"
         : spec_.rule.is_wired() ? std::string("NCCL, sent as ") + dtype_name(spec_.rule.wire)
                                 : "NCCL, copied";
}

}  // namespace ddp::nccl
