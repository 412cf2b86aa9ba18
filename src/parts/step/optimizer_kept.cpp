// SPDX-License-Identifier: Apache-2.0
// Taking a step back where each rank has kept its slice alone.
#include <algorithm>
#include <functional>
#include <memory>

#include "parts/step/optimizer_stage.hpp"

namespace ddp::parts {

/// Sends the kept copies of each rank to all: values, and their state. This is rare, so the exchanges are made when they are
/// needed.
void OptimizerStage::give_kept() {
  for (size_t b = 0; b < plan_.size(); ++b) {
    const PlannedBucket& bucket = plan_[b];
    if (bucket.pieces.empty()) continue;
    const bool owned = std::all_of(bucket.pieces.begin(), bucket.pieces.end(), [&](const PlannedPiece& piece) {
      return table_.parameter(piece.parameter).lies_in_value_block();
    });
    give_kept(
        b, bucket.dtype, [&](int32_t index) { return table_.parameter(index).value.data; }, owned);
    const size_t arrays = update_.beside(bucket.pieces.front().parameter).size();
    for (size_t k = 0; k < arrays; ++k)
      give_kept(
          b, update_.beside(bucket.pieces.front().parameter)[k].dtype,
          [&](int32_t index) { return update_.beside(index)[k].data; }, false);
  }
}

void OptimizerStage::give_kept(size_t bucket, ddp_dtype dtype, const std::function<std::byte*(int32_t parameter)>& array,
                               bool owned) {
  collective::ExchangeSpec spec = describe_(bucket);
  spec.collects = false;
  spec.ownership = &owners_.kept->buckets[bucket];
  spec.rule = cpu::ReduceRule{dtype};
  spec.dense = false;
  spec.largest_bytes = std::max(spec.largest_bytes, spec.count * dtype_size(dtype));
  spec.pieces.clear();
  collective::BucketHeader header;
  header.used.resize(spec.used_words());
  for (const PlannedPiece& piece : plan_[bucket].pieces) {
    const size_t at = spec.pieces.size();
    std::byte* const data = piece.count > 0 ? array(piece.parameter) + piece.first * dtype_size(dtype) : nullptr;
    spec.pieces.push_back(collective::BucketSpec::Piece{data, piece.count, owned, piece.offset});
    header.used.resize(spec.used_words());
    header.used[at / 64] |= uint64_t{1} << (at % 64);
  }
  const std::unique_ptr<collective::BucketOperation> operation = channel_.prepare(spec);
  operation->start(header);
  operation->finish();
}

}  // namespace ddp::parts
