// SPDX-License-Identifier: Apache-2.0
#include "shm/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "device/cpu/stream.hpp"
#include "shm/extent.hpp"

namespace ddp::shm {

Announcement::Announcement(Engine& engine, const collective::Stamp& stamp, size_t pieces) : engine_(&engine), stamp_(stamp) {
  header_.used.resize((pieces + 63) / 64);
  weights_.resize(static_cast<size_t>(engine.leaves().total()));
}

void Announcement::start(const collective::BucketHeader& mine) noexcept {
  header_.incomplete = mine.incomplete;
  header_.participation = mine.participation;
  std::copy(mine.used.begin(), mine.used.end(), header_.used.begin());
  sequence_ = engine_->next_sequence();
}

bool Announcement::try_show() noexcept {
  return engine_->try_announce(sequence_, [this](Slot& slot) {
    slot.stamp = stamp_;
    slot.incomplete = header_.incomplete ? 1 : 0;
    slot.participation = header_.participation;
    std::copy(header_.used.begin(), header_.used.end(), slot.used);
  });
}

void Announcement::read() {
  engine_->check_stamps(sequence_);
  const LeafMap& leaves = engine_->leaves();
  header_.participation = collective::sum_weights(leaves.total(), [&](int64_t position) {
    const int32_t peer = leaves.rank_at(position);
    return peer == LeafMap::kHole ? collective::Participation::none() : engine_->slot(peer, sequence_).participation;
  });
  weighted_ = false;
  for (int32_t peer = 0; peer < engine_->size(); ++peer) {
    const Slot& slot = engine_->slot(peer, sequence_);
    header_.incomplete = header_.incomplete || slot.incomplete != 0;
    weigh(peer, slot.participation.weight);
    for (size_t word = 0; word < header_.used.size(); ++word) header_.used[word] |= slot.used[word];
  }
}

void Announcement::weigh(int32_t peer, double weight) noexcept {
  if (peer == engine_->rank()) own_weight_ = weight;
  weights_[static_cast<size_t>(engine_->leaves().position_of(peer))] = weight;
  weighted_ = weighted_ || (weight > 0 && weight != 1.0);
}

namespace {

constexpr int64_t kReduceBytes = 256 << 10;  // of one input, between two looks at the budget
constexpr int64_t kWorkElements =
    16'384;  // a multiple of kSliceUnit; an update's four arrays of this length stay in the second-level cache

/// Elements of a chunk that one rank owns. A stage slot holds that of all ranks, in whole cache lines; where nothing is
/// collected, a result slot holds the own one alone.
int64_t lane_elements(const collective::ExchangeSpec& spec, int32_t ranks) noexcept {
  const int64_t element = dtype_size(spec.rule.dtype);
  if (!spec.collects) return kStageBytes / element;
  const int64_t bytes = std::max<int64_t>(kStageBytes / ranks / kLineBytes, 1) * kLineBytes;
  return bytes / (spec.ownership != nullptr && spec.gives ? element : dtype_size(spec.rule.travel_dtype()));
}

uint64_t chunks_of(int64_t elements, int64_t lane) noexcept { return static_cast<uint64_t>((elements + lane - 1) / lane); }

}  // namespace

Exchange::Shape Exchange::shape_of(const collective::ExchangeSpec& spec, int32_t ranks, const Routes& routes) noexcept {
  const int64_t lane = lane_elements(spec, ranks);
  return {spec.collects,
          spec.gives,
          spec.ownership == nullptr,
          dtype_size(spec.rule.dtype),
          dtype_size(spec.rule.travel_dtype()),
          lane,
          spec.pieces.size(),
          chunks_of(routes.most_staged(), lane)};
}

Exchange::Exchange(Engine& engine, const collective::ExchangeSpec& spec, Routes routes)
    : engine_(&engine),
      routes_(std::move(routes)),
      announcement_(engine, collective::stamp_of(spec.kind(), spec), spec.pieces.size()),
      rule_(spec.rule),
      work_(spec.work),
      shape_(shape_of(spec, engine.size(), routes_)),
      chunks_(engine, spec.collects && !routes_.reads_directly(), spec.gives),
      in_(static_cast<size_t>(engine.leaves().total())),
      out_(static_cast<size_t>(engine.size())) {
  routes_.populate();
}

void Exchange::start(const collective::BucketHeader& mine) {
  announcement_.start(mine);
  chunks_.begin(shape_.chunk_count);
  state_ = State::kStarted;
  (void)try_announce();
}

bool Exchange::try_announce() noexcept {
  const bool done = announcement_.try_show();
  if (done) state_ = State::kAnnounced;
  return done;
}

void Exchange::begin_work() noexcept {
  rule_.weight_sum = header().participation.weight;
  all_used_ = true;
  for (size_t piece = 0; piece < shape_.pieces; ++piece) all_used_ = all_used_ && announcement_.is_used(piece);
  const bool is_void = header().is_void();
  if (is_void) chunks_.pass_over();
  next_.route = is_void ? SIZE_MAX : 0;
  next_.element = 0;
  in_place_done_ = released_ = false;
  shown_ = is_void || !work_ || shape_.gives;
  state_ = State::kWorking;
}

bool Exchange::advance_in_place(int64_t* budget) {
  if (in_place_done_) return false;
  const std::vector<Route>& routes = routes_.in_place(all_used_);
  const int64_t most = shape_.is_shared ? kReduceBytes / shape_.element : kWorkElements;
  while (next_.route < routes.size() && *budget > 0) {
    const Route& route = routes[next_.route];
    const bool used = is_used(route.piece);
    const int64_t count = used ? std::min(most, route.count - next_.element) : route.count - next_.element;
    if (used) {
      if (shape_.is_shared)
        reduce_for_all(route, next_.element, count);
      else
        work_in_place(route, next_.element, count);
      *budget -= count * shape_.element;
    }
    next_.element += count;
    if (next_.element < route.count) continue;
    ++next_.route;
    next_.element = 0;
  }
  in_place_done_ = next_.route >= routes.size();
  return true;
}

void Exchange::reduce_for_all(const Route& route, int64_t at, int64_t count) noexcept {
  for (size_t rank = 0; rank < out_.size(); ++rank) out_[rank] = routes_.input(route, rank, at);
  const int32_t inputs = list_inputs([&](size_t rank) { return out_[rank]; });
  cpu::reduce(rule_, in_.data(), inputs, out_.data(), engine_->size(), count, weights());
}

void Exchange::reduce_own(const Route& route, int64_t at, int64_t count) noexcept {
  void* own = routes_.input(route, static_cast<size_t>(engine_->rank()), at);
  const int32_t inputs = list_inputs([&](size_t rank) { return routes_.input(route, rank, at); });
  cpu::reduce(rule_, in_.data(), inputs, &own, 1, count, weights());
}

/// Of a step, the phases follow each other on blocks that stay in the first-level cache.
void Exchange::work_in_place(const Route& route, int64_t at, int64_t count) noexcept {
  const auto me = static_cast<size_t>(engine_->rank());
  const int64_t most = shape_.collects && shape_.gives ? kBlockSize / shape_.element : count;
  for (const int64_t end = at + count; at < end; at += most) {
    const int64_t n = std::min(most, end - at);
    if (shape_.collects) reduce_own(route, at, n);
    if (work_) work_.on_block(route.piece, route.first + at, n);
    if (!shape_.gives) continue;
    const std::byte* const mine = routes_.output(route, me, at);
    for (size_t rank = 0; rank < out_.size(); ++rank)
      if (rank != me) cpu::stream_copy(routes_.output(route, rank, at), mine, n * shape_.element);
  }
  if (shape_.gives) cpu::stream_fence();
}

/// Elements [begin, end) of a rank's staged ones as one stretch, in the type of the wire: in place, if they are of one piece
/// that is to be written and need no conversion, else copied to the engine's block. So small gradients are sent and received
/// as whole lines too.
std::byte* Exchange::gather(int32_t rank, int64_t begin, int64_t end) noexcept {
  const auto route = routes_.route_at(rank, begin);
  if (!is_packed() && is_used(route->piece) && end <= route->begin + route->count)
    return routes_.own_input(route->piece, route->first + (begin - route->begin));
  std::byte* block = engine_->block();
  routes_.for_staged(rank, begin, end, [&](const Route& each, int64_t first, int64_t at, int64_t count) {
    const std::byte* const from = routes_.own_input(each.piece, first);
    if (is_packed())
      cpu::pack(rule_, from, own_weight(), block + at * shape_.travel, count);
    else
      std::memcpy(block + at * shape_.element, from, static_cast<size_t>(count * shape_.element));
  });
  return block;
}

/// The way back, of pieces that some rank uses. Outputs of a step are no terms, so they are not packed.
void Exchange::scatter(int32_t rank, int64_t begin, int64_t end, const std::byte* from, bool to_outputs) noexcept {
  const bool packed = is_packed() && (shape_.is_shared || !to_outputs);
  routes_.for_staged(rank, begin, end, [&](const Route& route, int64_t first, int64_t at, int64_t count) {
    if (!is_used(route.piece)) return;
    std::byte* const to = to_outputs ? routes_.own_output(route.piece, first) : routes_.own_input(route.piece, first);
    if (packed)
      cpu::unpack(rule_, from + at * shape_.travel, to, count);
    else
      std::memcpy(to, from + at * shape_.element, static_cast<size_t>(count * shape_.element));
  });
}

// The part that this rank reduces itself is read in place, so only the others' parts are copied.
void Exchange::fill(uint64_t k, uint64_t chunk) noexcept {
  std::byte* const stage = engine_->stages().stage(engine_->rank(), chunk);
  for (int32_t rank = 0; rank < engine_->size() && announcement_.own_weight() > 0; ++rank) {
    if (rank == engine_->rank()) continue;
    std::byte* const lane = lane_of(stage, rank);
    in_blocks(rank, k, [&](int64_t from, int64_t to) {
      engine_->count_sent((to - from) * shape_.travel);
      cpu::stream_copy(lane + (from - chunk_begin(k)) * shape_.travel, gather(rank, from, to), (to - from) * shape_.travel);
    });
  }
}

void Exchange::reduce(uint64_t k, uint64_t chunk) noexcept {
  if (shape_.collects && routes_.reads_directly())
    reduce_directly(k);
  else if (shape_.collects)
    reduce_staged(k, chunk);
  if (shape_.gives && !shape_.is_shared) give_staged(k, chunk);
}

void Exchange::reduce_staged(uint64_t k, uint64_t chunk) noexcept {
  const int32_t me = engine_->rank();
  in_blocks(me, k, [&](int64_t from, int64_t to) {
    const int64_t offset = (from - chunk_begin(k)) * shape_.travel;
    std::byte* const mine = gather(me, from, to);
    const int32_t inputs = list_inputs([&](size_t at) -> const void* {
      const auto rank = static_cast<int32_t>(at);
      return rank == me ? mine : lane_of(engine_->stages().stage(rank, chunk), me) + offset;
    });
    void* out = mine;
    cpu::reduce(is_packed() ? rule_.packed() : rule_, in_.data(), inputs, &out, 1, to - from,
                is_packed() ? nullptr : weights());
    if (shape_.is_shared) {
      engine_->count_sent((to - from) * shape_.travel);
      cpu::stream_copy(engine_->stages().result(me, chunk) + offset, mine, (to - from) * shape_.travel);
    }
    if (mine == engine_->block()) scatter(me, from, to, mine, false);
  });
}

void Exchange::reduce_directly(uint64_t k) noexcept {
  const int64_t most = kBlockSize / shape_.element;
  routes_.for_staged(engine_->rank(), chunk_begin(k), chunk_begin(k) + shape_.lane,
                     [&](const Route& route, int64_t first, int64_t, int64_t count) {
                       if (!is_used(route.piece)) return;
                       const int64_t end = first - route.first + count;
                       for (int64_t at = first - route.first; at < end; at += most)
                         reduce_own(route, at, std::min(most, end - at));
                     });
}

void Exchange::give_staged(uint64_t k, uint64_t chunk) noexcept {
  std::byte* const result = engine_->stages().result(engine_->rank(), chunk);
  routes_.for_staged(engine_->rank(), chunk_begin(k), chunk_begin(k) + shape_.lane,
                     [&](const Route& route, int64_t first, int64_t at, int64_t count) {
                       if (!is_used(route.piece)) return;
                       if (work_) work_.on_block(route.piece, first, count);
                       cpu::stream_copy(result + at * shape_.element, routes_.own_output(route.piece, first),
                                        count * shape_.element);
                     });
}

void Exchange::take(uint64_t k, uint64_t chunk) noexcept {
  for (int32_t rank = 0; rank < engine_->size(); ++rank)
    if (rank != engine_->rank())
      scatter(rank, chunk_begin(k), chunk_begin(k) + shape_.lane, engine_->stages().result(rank, chunk), true);
}

// Chunks do not end where blocks do, so work that sees no chunk comes after all of them.
void Exchange::show() noexcept {
  shown_ = true;
  for (const Route& route : routes_.staged(engine_->rank()))
    if (is_used(route.piece)) work_.on_block(route.piece, route.first, route.count);
}

/// This rank no longer reads or writes the others' memory.
void Exchange::release_when_read() {
  if (released_ || !in_place_done_ || (routes_.reads_directly() && !chunks_.all_reduced())) return;
  if (routes_.touches_others()) engine_->check_in_reach();
  released_ = true;
  engine_->advance(Counter::kFinished, announcement_.sequence());
}

bool Exchange::complete() noexcept {
  return released_ && shown_ && chunks_.done() &&
         (!routes_.touches_others() || engine_->all_reached(Counter::kFinished, announcement_.sequence()));
}

collective::Progress Exchange::advance(int64_t budget_bytes) {
  if (state_ == State::kDone || state_ == State::kIdle) return collective::Progress::kDone;
  if (state_ == State::kStarted && !try_announce()) return collective::Progress::kWaiting;
  if (state_ == State::kAnnounced) {
    if (!announcement_.all_shown()) return collective::Progress::kWaiting;
    announcement_.read();
    begin_work();
  }
  int64_t budget = budget_bytes;
  bool moved = advance_in_place(&budget);
  release_when_read();
  if (in_place_done_) moved = chunks_.advance(*this, &budget) || moved;
  release_when_read();
  if (chunks_.done() && in_place_done_ && !shown_) show();
  if (complete()) {
    state_ = State::kDone;
    return collective::Progress::kDone;
  }
  return moved ? collective::Progress::kAdvanced : collective::Progress::kWaiting;
}

bool Exchange::can_move() noexcept {
  switch (state_) {
    case State::kIdle:
    case State::kDone: return true;
    case State::kStarted: return try_announce();
    case State::kAnnounced: return announcement_.all_shown();
    case State::kWorking: break;
  }
  return !in_place_done_ || complete() || chunks_.can_move();
}

void Exchange::finish() {
  while (advance(INT64_MAX) != collective::Progress::kDone)
    if (!can_move()) engine_->wait([this] { return can_move(); }, announcement_.sequence());
}

bool Exchange::local_done() const noexcept {
  return state_ == State::kDone || state_ == State::kIdle ||
         (state_ == State::kWorking && released_ && chunks_.count() == 0);
}

std::string Exchange::describe() const {
  if (!is_packed()) return routes_.describe();
  return routes_.describe() + (routes_.most_staged() == 0 ? ", rounded as " : " as ") + dtype_name(rule_.wire);
}

}  // namespace ddp::shm
