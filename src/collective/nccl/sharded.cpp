#include "collective/nccl/sharded.hpp"

#include <algorithm>

namespace ddp::nccl {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, for wide accesses

}  // namespace

SliceLayout lay_out(const Ownership& ownership, int64_t unit) {
  SliceLayout layout;
  const auto up = [unit](int64_t count) { return (count + unit - 1) / unit * unit; };
  for (int32_t rank = 0; rank < ownership.ranks(); ++rank) {
    std::vector<SliceLayout::Part> parts;
    int64_t at = 0;
    for (const OwnedSpan& span : ownership.slice(rank)) {
      if (span.count == 0) continue;
      parts.push_back(SliceLayout::Part{span, at});
      at += up(span.count);
    }
    layout.ranks.push_back(std::move(parts));
    layout.slice = std::max(layout.slice, at);
  }
  for (size_t rank = 0; rank < layout.ranks.size(); ++rank)
    for (SliceLayout::Part& part : layout.ranks[rank]) part.offset += static_cast<int64_t>(rank) * layout.slice;
  return layout;
}

ReduceScatter::ReduceScatter(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
                             const collective::ExchangeSpec& spec)
    : Operation(transport, std::move(metadata)),
      spec_(spec),
      layout_(lay_out(*spec.ownership, kAlignment / dtype_size(travel_dtype(spec.rule)))) {
  size_t most = 0;
  for (const auto& parts : layout_.ranks) most += parts.size();
  spans_.reserve(most);
  if (transport.size() > 1 && layout_.slice > 0)
    memory_ =
        static_cast<std::byte*>(transport.alloc(layout_.slice * transport.size() * dtype_size(travel_dtype(spec.rule))));
}

ReduceScatter::~ReduceScatter() {
  if (memory_ != nullptr) transport().free(memory_);
}

void ReduceScatter::launch(const collective::BucketHeader& mine) {
  if (memory_ == nullptr) return;
  const Factors factors = factors_of(spec_.rule, mine.participation.weight);
  const ddp_dtype wire = travel_dtype(spec_.rule);
  pack(mine, factors.before);
  std::byte* const own = memory_ + transport().rank() * layout_.slice * dtype_size(wire);
  transport().communicator().reduce_scatter(memory_, own, layout_.slice, wire, DDP_GPU_SUM, transport().stream());
  if (!spec_.partial_allowed) unpack(nullptr, factors.after);
}

void ReduceScatter::pack(const collective::BucketHeader& mine, double factor) {
  const ddp_dtype wire = travel_dtype(spec_.rule);
  const int64_t size = dtype_size(spec_.rule.dtype);
  spans_.clear();
  for (const auto& parts : layout_.ranks)
    for (const SliceLayout::Part& part : parts) {
      const bool contributes = mine.participation.contributors > 0 && mine.uses(static_cast<size_t>(part.span.piece));
      std::byte* const from =
          contributes ? spec_.pieces[static_cast<size_t>(part.span.piece)].data + part.span.first * size : nullptr;
      spans_.push_back(ddp_gpu_span{from, memory_ + part.offset * dtype_size(wire), part.span.count});
    }
  move(spans_, spec_.rule.dtype, wire, factor, nullptr, "packing a bucket");
}

void ReduceScatter::unpack(const collective::BucketHeader* joined, double factor) {
  const ddp_dtype wire = travel_dtype(spec_.rule);
  const int64_t size = dtype_size(spec_.rule.dtype);
  spans_.clear();
  for (const SliceLayout::Part& part : layout_.ranks[static_cast<size_t>(transport().rank())])
    if (joined == nullptr || joined->uses(static_cast<size_t>(part.span.piece)))
      spans_.push_back(ddp_gpu_span{memory_ + part.offset * dtype_size(wire),
                                    spec_.pieces[static_cast<size_t>(part.span.piece)].data + part.span.first * size,
                                    part.span.count});
  move(spans_, wire, spec_.rule.dtype, factor, transport().stop_on(transport().stream()), "writing a slice back");
}

void ReduceScatter::settle(const collective::BucketHeader& joined) {
  if (memory_ == nullptr || !spec_.partial_allowed || joined.is_void()) return;
  unpack(&joined, late_factor(spec_.rule, joined));
}

bool ReduceScatter::set_address(int32_t piece, std::byte* data) noexcept {
  spec_.pieces[static_cast<size_t>(piece)].data = data;
  return true;
}

AllGather::AllGather(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
                     const collective::ExchangeSpec& spec)
    : Operation(transport, std::move(metadata)),
      spec_(spec),
      layout_(lay_out(*spec.ownership, kAlignment / dtype_size(spec.rule.dtype))) {
  size_t most = 0;
  for (const auto& parts : layout_.ranks) most += parts.size();
  spans_.reserve(most);
  if (transport.size() > 1 && layout_.slice > 0)
    memory_ = static_cast<std::byte*>(transport.alloc(layout_.slice * transport.size() * dtype_size(spec.rule.dtype)));
}

AllGather::~AllGather() {
  if (memory_ != nullptr) transport().free(memory_);
}

/// The spans of a rank's slice, from the values into the bucket's memory or back.
void AllGather::collect(const collective::BucketHeader& header, size_t rank, bool to_memory) {
  const int64_t size = dtype_size(spec_.rule.dtype);
  for (const SliceLayout::Part& part : layout_.ranks[rank]) {
    if (!header.uses(static_cast<size_t>(part.span.piece))) continue;
    std::byte* const value = spec_.pieces[static_cast<size_t>(part.span.piece)].data + part.span.first * size;
    std::byte* const place = memory_ + part.offset * size;
    spans_.push_back(to_memory ? ddp_gpu_span{value, place, part.span.count} : ddp_gpu_span{place, value, part.span.count});
  }
}

void AllGather::launch(const collective::BucketHeader& mine) {
  const auto own = static_cast<size_t>(transport().rank());
  for (const SliceLayout::Part& part : layout_.ranks[own])
    if (spec_.work != nullptr && mine.uses(static_cast<size_t>(part.span.piece)))
      spec_.work->on_block(part.span.piece, part.span.first, part.span.count);
  if (spec_.work != nullptr) spec_.work->flush(transport().stream());
  if (memory_ == nullptr) return;
  spans_.clear();
  collect(mine, own, true);
  move(spans_, spec_.rule.dtype, spec_.rule.dtype, 1, nullptr, "packing parameters");
  std::byte* const place = memory_ + transport().rank() * layout_.slice * dtype_size(spec_.rule.dtype);
  transport().communicator().all_gather(place, memory_, layout_.slice, spec_.rule.dtype, transport().stream());
  spans_.clear();
  for (size_t rank = 0; rank < layout_.ranks.size(); ++rank)
    if (rank != own) collect(mine, rank, false);
  move(spans_, spec_.rule.dtype, spec_.rule.dtype, 1, transport().stop_on(transport().stream()),
       "writing parameters of other ranks");
}

}  // namespace ddp::nccl
