// SPDX-License-Identifier: Apache-2.0
#include "nccl/sharded.hpp"

namespace ddp::nccl {

ReduceScatter::ReduceScatter(Engine& transport, std::unique_ptr<collective::BucketOperation> metadata,
                             const collective::ExchangeSpec& spec)
    : Operation(transport, std::move(metadata), spec, travel_dtype(spec.rule, adder_of(transport)), spec.partial_allowed),
      sum_(make_sum()) {}

std::optional<BlockCollective> ReduceScatter::uses() const {
  if (sum_ != nullptr) return std::nullopt;
  return BlockCollective{BlockCollective::Kind::kReduceScatter, block().slice_count(), block().dtype()};
}

void ReduceScatter::launch(const collective::BucketHeader& mine) {
  if (block().is_empty()) return;
  const Factors factors = factors_of(spec().rule, mine.participation.weight, adder());
  if (sum_ == nullptr || mine.participation.contributors > 0) fill(mine, factors.before);
  time(trace::GpuWork::kReduceScatter);
  if (sum_ != nullptr)
    sum_->reduce_scatter(block().data(), mine.participation);
  else
    transport().communicator().run(*uses(), block().data(), transport().rank(), transport().stream());
  if (block().is_in_place())
    divide(own(), factors.after);
  else if (!spec().partial_allowed)
    unpack({own()}, nullptr, factors.after);
}

void ReduceScatter::settle(const collective::BucketHeader& joined) {
  if (block().is_empty() || !spec().partial_allowed || joined.is_void()) return;
  unpack({own()}, &joined, late_scale(spec().rule, joined, adder()));
}

std::string ReduceScatter::describe() const {
  return block().is_in_place() ? "NCCL, to slices, in place" : "NCCL, to slices, copied";
}

AllGather::AllGather(Engine& transport, std::unique_ptr<collective::BucketOperation> metadata,
                     const collective::ExchangeSpec& spec)
    : Operation(transport, std::move(metadata), spec, spec.rule.dtype, false) {}

std::optional<BlockCollective> AllGather::uses() const {
  return BlockCollective{BlockCollective::Kind::kAllGather, block().slice_count(), block().dtype()};
}

void AllGather::launch(const collective::BucketHeader& mine) {
  const int32_t rank = transport().rank();
  for (const OwnedSpan& span : spec().ownership->slice(rank))
    if (spec().work != nullptr && mine.uses(static_cast<size_t>(span.piece)))
      spec().work->on_block(span.piece, span.first, span.count);
  if (spec().work != nullptr) spec().work->flush(transport().stream());
  if (block().is_empty()) return;
  if (!block().is_in_place()) collect(own(), mine);
  time(trace::GpuWork::kAllGather);
  transport().communicator().run(*uses(), block().data(), rank, transport().stream());
  if (!block().is_in_place()) unpack({Range{0, own().begin}, Range{own().end, block().count()}}, &mine, {});
}

std::string AllGather::describe() const {
  return block().is_in_place() ? "NCCL, from slices, in place" : "NCCL, from slices, copied";
}

}  // namespace ddp::nccl
