// SPDX-License-Identifier: Apache-2.0
#include "pass/gradient_layout.hpp"

#include <algorithm>
#include <string>

#include "core/bytes.hpp"
#include "core/hash.hpp"

namespace ddp::pass {
namespace {

using Block = GradientLayout::Block;

/// A gradient of the bucket, or a piece of it.
struct Place {
  std::byte* data;
  int64_t bytes;
  int64_t planned;  // offset in the bucket, bytes
};

/// In the order of their addresses; none if one of them is libddp's, which has blocks of its own.
std::vector<Place> places_of(const Parameters& table, const PlannedBucket& bucket) {
  std::vector<Place> places;
  const int64_t size = dtype_size(bucket.dtype);
  for (const PlannedPiece& piece : bucket.pieces) {
    const Parameter& parameter = table.parameter(piece.parameter);
    if (parameter.lies_in_grad_block()) return {};
    if (piece.count == 0) continue;
    places.push_back({flat_part(parameter.grad, piece.first, piece.count).data, piece.count * size, piece.offset * size});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.data < b.data; });
  return places;
}

struct Found {
  Block block = Block::kNone;
  uint64_t order = 0;  // of the gradients in the block
};

Found find_block(const collective::Ranks& ranks, const Parameters& table, const PlannedBucket& bucket) {
  const std::vector<Place> places = bucket.on_gpu ? places_of(table, bucket) : std::vector<Place>{};
  if (places.empty()) return {};
  const std::byte* end = places.front().data;
  bool planned = true;
  Hasher order;
  for (const Place& place : places) {
    if (place.data != end) return {};
    planned = planned && place.planned == place.data - places.front().data;
    order.add(&place.planned, sizeof place.planned);
    end += place.bytes;
  }
  const int64_t bytes = end - places.front().data;
  if (!ranks.transport().gpu()->gave(places.front().data, bytes)) return {};
  planned = planned && bytes == bucket.count * dtype_size(bucket.dtype);
  return {planned ? Block::kPlanned : Block::kDense, order.value()};
}

}  // namespace

GradientLayout::GradientLayout(const collective::Ranks& ranks, const Parameters& table, const Plan& plan)
    : some_on_gpu_(std::any_of(plan.begin(), plan.end(), [](const PlannedBucket& bucket) { return bucket.on_gpu; })),
      blocks_(plan.size(), Block::kNone) {
  if (ranks.size() == 1 || !some_on_gpu_) return;
  ByteWriter mine;
  for (size_t b = 0; b < plan.size(); ++b) {
    const Found found = find_block(ranks, table, plan[b]);
    blocks_[b] = found.block;
    mine.number(found.block != Block::kNone ? found.order : 0);
  }
  const std::vector<std::string> all = ranks.gather("gradient layout", mine.bytes());
  std::vector<ByteReader> theirs(all.begin(), all.end());
  for (Block& block : blocks_) {
    const auto order = theirs.front().number<uint64_t>();
    bool alike = true;
    for (size_t rank = 1; rank < theirs.size(); ++rank) alike = (theirs[rank].number<uint64_t>() == order) && alike;
    if (block == Block::kDense && !alike) block = Block::kNone;
  }
}

}  // namespace ddp::pass
