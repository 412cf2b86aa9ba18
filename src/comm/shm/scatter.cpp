#include "comm/shm/scatter.hpp"

#include <algorithm>

#include "comm/shm/stream.hpp"

namespace ddp::shm {
namespace {

constexpr int64_t kLine = 64;

/// Elements that one rank owns of a chunk; whole cache lines.
int64_t lane_elements(int64_t element, int32_t ranks) noexcept {
  return std::max<int64_t>(kStageBytes / ranks / kLine, 1) * kLine / element;
}

}  // namespace

Scatter::Scatter(Engine& engine, const BucketSpec& spec, const Slices& slices, const std::vector<PieceReach>& reach, SliceWork* work)
    : SliceOperation(engine, SliceMap(engine, spec.pieces, dtype_size(spec.rule.dtype), slices, reach), stamp_of(Collective::kScatter, spec),
                     spec.pieces.size(),
                     lane_elements(dtype_size(spec.rule.travel_dtype()), engine.size()), work),
      rule_(spec.rule),
      travel_(dtype_size(spec.rule.travel_dtype())),
      lane_elements_(lane_elements(dtype_size(spec.rule.travel_dtype()), engine.size())),
      in_(static_cast<size_t>(engine.size())) {}

void Scatter::reset() noexcept {
  rule_.weight_sum = note().tally.weight;
  filled_ = reduced_ = 0;
  seen_ = false;
}

void Scatter::work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept {
  for (size_t k = 0; k < said().inputs().size(); ++k) in_[k] = map().peer(route, said().inputs()[k], at);
  void* out = map().peer(route, static_cast<size_t>(engine().rank()), at);
  cpu::reduce(rule_, in_.data(), static_cast<int32_t>(said().inputs().size()), &out, 1, count, said().weights());
  if (work() != nullptr) work()->on_block(route.piece, route.first + at, count);
}

void Scatter::send(const SliceMap::Route& route, int64_t first, int64_t count, std::byte* to) noexcept {
  engine().count_sent(count * travel_);
  if (!is_packed()) return stream_copy(to, map().own(route.piece, first), count * travel_);
  const int64_t most = kBlockSize / travel_;
  for (int64_t at = 0; at < count; at += most) {
    const int64_t n = std::min(most, count - at);
    cpu::pack(rule_, map().own(route.piece, first + at), said().own_weight(), engine().block(), n);
    stream_copy(to + at * travel_, engine().block(), n * travel_);
  }
}

void Scatter::fill_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk() + k;
  std::byte* const stage = engine().stage(engine().rank(), chunk);
  for (int32_t rank = 0; rank < engine().size() && said().own_weight() > 0; ++rank) {
    if (rank == engine().rank()) continue;  // added where it lies
    std::byte* const lane = stage + rank * lane_elements_ * travel_;
    map().for_staged(rank, chunk_begin(k), chunk_begin(k) + chunk_count(rank, k),
                     [&](const SliceMap::Route& route, int64_t first, int64_t at, int64_t count) { send(route, first, count, lane + at * travel_); });
  }
  stream_fence();
  engine().use_stage(chunk, Counter::kReduced);
  engine().advance(Counter::kFilled, chunk);
}

/// The packed terms at `offset` of the chunk, and the own ones.
void Scatter::add_packed(const SliceMap::Route& route, int64_t first, int64_t offset, int64_t count, uint64_t chunk) noexcept {
  const int64_t most = kBlockSize / travel_;
  for (int64_t at = 0; at < count; at += most) {
    const int64_t n = std::min(most, count - at);
    std::byte* const own = map().own(route.piece, first + at);
    void* block = engine().block();
    if (said().own_weight() > 0) cpu::pack(rule_, own, said().own_weight(), block, n);
    for (size_t i = 0; i < said().inputs().size(); ++i) {
      const auto rank = static_cast<int32_t>(said().inputs()[i]);
      in_[i] = rank == engine().rank() ? block : engine().stage(rank, chunk) + (offset + at) * travel_;
    }
    cpu::reduce(rule_.packed(), in_.data(), static_cast<int32_t>(said().inputs().size()), &block, 1, n);
    cpu::unpack(rule_, block, own, n);
  }
}

void Scatter::reduce_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk() + k;
  const int32_t me = engine().rank();
  map().for_staged(me, chunk_begin(k), chunk_begin(k) + chunk_count(me, k),
                   [&](const SliceMap::Route& route, int64_t first, int64_t at, int64_t count) {
                     if (!is_used(route.piece)) return;
                     const int64_t offset = me * lane_elements_ + at;
                     if (is_packed()) return add_packed(route, first, offset, count, chunk);
                     void* out = map().own(route.piece, first);
                     for (size_t i = 0; i < said().inputs().size(); ++i) {
                       const auto rank = static_cast<int32_t>(said().inputs()[i]);
                       in_[i] = rank == me ? out : engine().stage(rank, chunk) + offset * travel_;
                     }
                     cpu::reduce(rule_, in_.data(), static_cast<int32_t>(said().inputs().size()), &out, 1, count, said().weights());
                   });
  engine().advance(Counter::kReduced, chunk);
  engine().advance(Counter::kTaken, chunk);
}

// Chunks do not end where blocks do, so the work comes after all of them.
void Scatter::show_staged() noexcept {
  seen_ = true;
  if (work() == nullptr) return;
  for (const SliceMap::Route& route : map().staged(engine().rank()))
    if (is_used(route.piece)) work()->on_block(route.piece, route.first, route.count);
}

bool Scatter::can_fill() noexcept {
  return filled_ < chunks() && filled_ < reduced_ + static_cast<uint64_t>(kStageDepth) && engine().stage_free(first_chunk() + filled_);
}

bool Scatter::can_reduce() noexcept { return reduced_ < filled_ && engine().all_reached(Counter::kFilled, first_chunk() + reduced_); }

bool Scatter::staged_can_move() noexcept { return can_fill() || can_reduce() || (reduced_ == chunks() && !seen_); }

bool Scatter::work_staged(int64_t* budget) {
  bool moved = false;
  while (*budget > 0 && (can_fill() || can_reduce())) {
    if (can_fill()) {
      fill_chunk(filled_++);
      *budget -= kStageBytes / 2;
    }
    if (can_reduce()) {
      reduce_chunk(reduced_++);
      *budget -= kStageBytes / 2;
    }
    moved = true;
  }
  if (reduced_ == chunks() && !seen_) show_staged();
  return moved;
}

}  // namespace ddp::shm
