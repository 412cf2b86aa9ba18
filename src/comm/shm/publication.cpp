#include "comm/shm/publication.hpp"

#include <cstring>

#include "comm/shm/stream.hpp"

namespace ddp::shm {
namespace {

Stamp stamp_of(const PublishSpec& spec) noexcept {
  Stamp stamp;
  stamp.kind = Collective::kPublish;
  stamp.dtype = spec.dtype;
  stamp.bucket = spec.bucket;
  stamp.plan_hash = spec.plan_hash;
  for (const BucketSpec::Piece& piece : spec.pieces) stamp.count += piece.count;
  return stamp;
}

}  // namespace

Publication::Publication(Engine& engine, const PublishSpec& spec, const std::vector<PieceReach>& reach)
    : SliceOperation(engine, SliceMap(engine, spec.pieces, dtype_size(spec.dtype), *spec.slices, reach), stamp_of(spec), spec.pieces.size(),
                     kStageBytes / dtype_size(spec.dtype), spec.work) {}

void Publication::work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept {
  work()->on_block(route.piece, route.first + at, count);
  const auto me = static_cast<size_t>(engine().rank());
  const std::byte* const mine = map().peer(route, me, at);
  for (size_t rank = 0; rank < static_cast<size_t>(engine().size()); ++rank)
    if (rank != me) stream_copy(map().peer(route, rank, at), mine, count * map().element());
  stream_fence();
}

void Publication::give_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk() + k;
  const int32_t me = engine().rank();
  std::byte* const result = engine().result(me, chunk);
  map().for_staged(me, chunk_begin(k), chunk_begin(k) + chunk_count(me, k),
                   [&](const SliceMap::Route& route, int64_t first, int64_t at, int64_t count) {
                     if (!is_used(route.piece)) return;
                     work()->on_block(route.piece, first, count);
                     stream_copy(result + at * map().element(), map().own(route.piece, first), count * map().element());
                   });
  stream_fence();
  engine().advance(Counter::kFilled, chunk);
  engine().advance(Counter::kReduced, chunk);
}

void Publication::take_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk() + k;
  for (int32_t rank = 0; rank < engine().size(); ++rank) {
    if (rank == engine().rank()) continue;
    const std::byte* const result = engine().result(rank, chunk);
    map().for_staged(rank, chunk_begin(k), chunk_begin(k) + chunk_count(rank, k),
                     [&](const SliceMap::Route& route, int64_t first, int64_t at, int64_t count) {
                       if (!is_used(route.piece)) return;
                       std::memcpy(map().own(route.piece, first), result + at * map().element(), static_cast<size_t>(count * map().element()));
                     });
  }
  engine().advance(Counter::kTaken, chunk);
}

bool Publication::can_give() noexcept {
  return given_ < chunks() && given_ < taken_ + static_cast<uint64_t>(kStageDepth) && engine().result_free(first_chunk() + given_);
}

bool Publication::can_take() noexcept { return taken_ < given_ && engine().all_reached(Counter::kReduced, first_chunk() + taken_); }

bool Publication::work_staged(int64_t* budget) {
  bool moved = false;
  while (*budget > 0 && (can_give() || can_take())) {
    if (can_give()) {
      give_chunk(given_++);
      *budget -= kStageBytes / 2;
    }
    if (can_take()) {
      take_chunk(taken_++);
      *budget -= kStageBytes / 2;
    }
    moved = true;
  }
  return moved;
}

}  // namespace ddp::shm
