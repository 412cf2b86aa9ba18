// SPDX-License-Identifier: Apache-2.0
#include "pass/buckets.hpp"

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

Buckets::Buckets(Of of)
    : of_(std::move(of)),
      places_(of_.plan, of_.table.parameters().size()),
      layout_(of_.ranks, of_.table, of_.plan),
      pending_(of_.plan.size()) {
  for (size_t b = 0; b < of_.plan.size(); ++b) {
    auto bucket = std::make_unique<Bucket>();
    bucket->operation = prepare(b);
    bucket->active = bucket->operation.get();
    bucket->header.used.resize((of_.plan[b].pieces.size() + 63) / 64);
    buckets_.push_back(std::move(bucket));
  }
}

std::unique_ptr<collective::BucketOperation> Buckets::prepare(size_t bucket) const {
  const collective::BucketSpec spec = describe(bucket);
  for (PassPart* const part : of_.parts)
    if (std::unique_ptr<collective::BucketOperation> operation = part->prepare(spec)) return operation;
  return of_.ranks.prepare(spec);
}

collective::BucketSpec Buckets::describe(size_t bucket) const {
  const PlannedBucket& planned = of_.plan[bucket];
  collective::BucketSpec spec;
  spec.index = static_cast<int32_t>(bucket);
  spec.rule = of_.rules.of(planned.dtype);
  spec.plan_hash = of_.plan_hash;
  spec.on_gpu = planned.on_gpu;
  spec.all_on_gpu = std::all_of(of_.plan.begin(), of_.plan.end(), [](const PlannedBucket& each) { return each.on_gpu; });
  spec.dense = layout_.of(bucket) == GradientLayout::Block::kDense;
  spec.partial_allowed = of_.partial_allowed;
  spec.count = planned.count;
  if (planned.on_gpu) spec.largest_bytes = of_.rules.largest_bytes_on_gpu(of_.plan);
  for (const PlannedPiece& piece : planned.pieces) {
    const Parameter& parameter = of_.table.parameter(piece.parameter);
    const Tensor part = flat_part(parameter.grad, piece.first, piece.count);
    const bool owned = parameter.lies_in_grad_block() || layout_.of(bucket) == GradientLayout::Block::kPlanned;
    spec.pieces.push_back(collective::BucketSpec::Piece{part.data, part.count, owned, piece.offset});
  }
  for (const PassPart* const part : of_.parts) part->describe(spec);
  return spec;
}

std::string Buckets::describe_plan() const {
  std::string text;
  for (size_t b = 0; b < of_.plan.size(); ++b) {
    const PlannedBucket& planned = of_.plan[b];
    text += "bucket " + std::to_string(b) + ": " + std::to_string(planned.count * dtype_size(planned.dtype)) + " bytes of " +
            dtype_name(planned.dtype) + ", " + buckets_[b]->operation->describe() + ":";
    for (const PlannedPiece& piece : planned.pieces) {
      const Parameter& parameter = of_.table.parameter(piece.parameter);
      const int64_t unit = parameter.reals_each(), first = piece.first / unit, end = first + piece.count / unit;
      text += " " + parameter.name;
      if (piece.count < parameter.grad.count) text += "[" + std::to_string(first) + ":" + std::to_string(end) + "]";
    }
    text += "\n";
  }
  return text;
}

bool Buckets::set_address(int32_t index, std::byte* data) noexcept {
  if (data == of_.table.parameter(index).grad.data) return true;
  const std::span<const PiecePlace> all = places(index);
  const auto is_tied = [&](const PiecePlace& place) {
    return layout_.of(static_cast<size_t>(place.bucket)) != GradientLayout::Block::kNone;
  };
  if (std::any_of(all.begin(), all.end(), is_tied)) return false;
  return std::all_of(all.begin(), all.end(), [&](const PiecePlace& place) {
    const auto bucket = static_cast<size_t>(place.bucket);
    std::byte* const begin = data + piece(place).first * dtype_size(of_.plan[bucket].dtype);
    return buckets_[bucket]->operation->set_address(place.piece, begin) &&
           std::all_of(of_.parts.begin(), of_.parts.end(),
                       [&](PassPart* part) { return part->set_address(bucket, place.piece, begin); });
  });
}

void Buckets::begin_pass(bool reduces) noexcept {
  next_ = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = *buckets_[b];
    pending_[b].store(static_cast<int32_t>(of_.plan[b].pieces.size()), std::memory_order_relaxed);
    static_cast<void>(bucket.operation->leave_sum(false));
    bucket.active = bucket.operation.get();
    if (!reduces) continue;
    for (PassPart* const part : of_.parts) bucket.active = &part->choose(b, *bucket.active);
  }
}

void Buckets::note_stream(size_t bucket, void* stream) {
  Bucket& of = *buckets_[bucket];
  const std::lock_guard lock(of.streaming);
  if (std::find(of.streams.begin(), of.streams.end(), stream) == of.streams.end()) of.streams.push_back(stream);
}

/// What comes after one bucket comes after all that start behind it, and one wait for each stream will do.
void Buckets::join_streams(size_t begin, size_t end) {
  while (begin < end && !of_.plan[begin].on_gpu) ++begin;
  for (size_t bucket = begin + 1; bucket < end; ++bucket)
    take_streams(bucket, [&](void* stream) { note_stream(begin, stream); });
}

void Buckets::order_marks(void* stream) {
  collective::GpuSide* const gpu = this->gpu();
  if (gpu == nullptr) return;
  const std::lock_guard lock(starting_);
  join_streams(0, size());
  for (size_t bucket = 0; bucket < size(); ++bucket) take_streams(bucket, [&](void* of_mark) { gpu->order_after(of_mark); });
  gpu->order_before(stream);
}

collective::BucketOperation& Buckets::start(size_t bucket) {
  Bucket& of = *buckets_[bucket];
  take_streams(bucket, [&](void* stream) { of.active->wait_for_stream(stream); });
  of.active->start(of.header);
  return *of.active;
}

}  // namespace ddp::pass
