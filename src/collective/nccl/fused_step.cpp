// SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/fused_step.hpp"

#include "collective/nccl/mean.hpp"

namespace ddp::nccl {

bool can(collective::Collective kind, const ddp_group_options& options, int32_t ranks) noexcept {
  return kind != collective::Collective::kFusedStep || (options.nccl_multicast != 0 && ranks > 1);
}

/// None where terms are scaled before the sum, or do not travel as they are.
Multicast::Blocks FusedStep::blocks_of(const collective::ExchangeSpec& spec) noexcept {
  const ddp_dtype dtype = spec.rule.dtype;
  if (spec.partial_allowed || spec.work == nullptr || spec.count == 0) return {};
  if (travel_dtype(spec.rule) != dtype || !factors_of(spec.rule).before.is_one()) return {};
  Multicast::Blocks blocks{block_of(spec.pieces, dtype), block_of(spec.outputs, dtype), spec.count * dtype_size(dtype),
                           dtype};
  return blocks.grads != nullptr && blocks.values != nullptr ? blocks : Multicast::Blocks{};
}

FusedStep::FusedStep(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
                     const collective::ExchangeSpec& spec, const ddp_gpu_multicast& over)
    : Operation(transport, std::move(metadata), spec, spec.rule.dtype, false), over_(over) {}

/// What this rank misses or skips makes the pass void on all ranks, which take the step back.
void FusedStep::launch(const collective::BucketHeader& mine) {
  fill(mine, {});
  for (const OwnedSpan& span : spec().ownership->slice(transport().rank()))
    spec().work->on_block(span.piece, span.first, span.count);
  const double divisor = spec().rule.op == DDP_AVERAGE ? spec().rule.divisor : 1;
  transport().communicator().in_turn("updating parameters over multicast",
                                     [&] { spec().work->flush_over(transport().stream(), divisor, over_); });
}

}  // namespace ddp::nccl
