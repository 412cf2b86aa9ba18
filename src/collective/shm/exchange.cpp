#include "collective/shm/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "collective/shm/stream.hpp"

namespace ddp::shm {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kReduceBytes = 256 << 10;  // of one input, between two looks at the budget
constexpr int64_t kWorkElements =
    16'384;  // a multiple of kSliceUnit; an update's four arrays of this length stay in the second-level cache

/// Elements of a chunk that one rank owns. A stage slot holds that of all ranks, in whole cache lines; where nothing is
/// collected, a result slot holds the own one alone.
int64_t lane_elements(const collective::ExchangeSpec& spec, int32_t ranks) noexcept {
  const int64_t element = dtype_size(spec.rule.dtype);
  if (!spec.collects) return kStageBytes / element;
  const int64_t bytes = std::max<int64_t>(kStageBytes / ranks / kLine, 1) * kLine;
  return bytes / (spec.ownership != nullptr && spec.gives ? element : dtype_size(spec.rule.travel_dtype()));
}

uint64_t chunks_of(int64_t elements, int64_t lane) noexcept { return static_cast<uint64_t>((elements + lane - 1) / lane); }

}  // namespace

Exchange::Exchange(Engine& engine, const collective::ExchangeSpec& spec, Routes routes)
    : engine_(&engine),
      routes_(std::move(routes)),
      said_(engine, collective::stamp_of(spec.kind(), spec), spec.pieces.size()),
      rule_(spec.rule),
      work_(spec.work),
      collects_(spec.collects),
      gives_(spec.gives),
      is_shared_(spec.ownership == nullptr),
      element_(dtype_size(spec.rule.dtype)),
      travel_(dtype_size(spec.rule.travel_dtype())),
      lane_(lane_elements(spec, engine.size())),
      pieces_(spec.pieces.size()),
      chunk_count_(chunks_of(routes_.most_staged(), lane_)),
      chunks_(engine, spec.collects && !routes_.reads_directly(), spec.gives),
      in_(static_cast<size_t>(engine.size())),
      out_(static_cast<size_t>(engine.size())) {
  routes_.populate();
}

void Exchange::start(const collective::BucketHeader& mine) {
  said_.start(mine);
  chunks_.begin(chunk_count_);
  state_ = State::kStarted;
  (void)try_announce();
}

bool Exchange::try_announce() noexcept {
  const bool done = said_.try_show();
  if (done) state_ = State::kAnnounced;
  return done;
}

void Exchange::begin_work() noexcept {
  rule_.weight_sum = note().participation.weight;
  all_used_ = true;
  for (size_t piece = 0; piece < pieces_; ++piece) all_used_ = all_used_ && said_.is_used(piece);
  const bool is_void = note().is_void();
  if (is_void) chunks_.pass_over();
  route_ = is_void ? SIZE_MAX : 0;
  at_ = 0;
  in_place_done_ = released_ = false;
  shown_ = is_void || work_ == nullptr || gives_;
  state_ = State::kWorking;
}

bool Exchange::advance_in_place(int64_t* budget) {
  if (in_place_done_) return false;
  const std::vector<Route>& routes = routes_.in_place(all_used_);
  const int64_t most = is_shared_ ? kReduceBytes / element_ : kWorkElements;
  while (route_ < routes.size() && *budget > 0) {
    const Route& route = routes[route_];
    const bool used = is_used(route.piece);
    const int64_t count = used ? std::min(most, route.count - at_) : route.count - at_;
    if (used) {
      if (is_shared_)
        reduce_for_all(route, at_, count);
      else
        work_in_place(route, at_, count);
      *budget -= count * element_;
    }
    at_ += count;
    if (at_ < route.count) continue;
    ++route_;
    at_ = 0;
  }
  in_place_done_ = route_ >= routes.size();
  return true;
}

void Exchange::reduce_for_all(const Route& route, int64_t at, int64_t count) noexcept {
  for (size_t rank = 0; rank < out_.size(); ++rank) out_[rank] = routes_.input(route, rank, at);
  const int32_t inputs = list_inputs([&](size_t rank) { return out_[rank]; });
  cpu::reduce(rule_, in_.data(), inputs, out_.data(), engine_->size(), count, said_.weights());
}

void Exchange::reduce_own(const Route& route, int64_t at, int64_t count) noexcept {
  void* own = routes_.input(route, static_cast<size_t>(engine_->rank()), at);
  const int32_t inputs = list_inputs([&](size_t rank) { return routes_.input(route, rank, at); });
  cpu::reduce(rule_, in_.data(), inputs, &own, 1, count, said_.weights());
}

/// Of a step, the phases follow each other on blocks that stay in the first-level cache.
void Exchange::work_in_place(const Route& route, int64_t at, int64_t count) noexcept {
  const auto me = static_cast<size_t>(engine_->rank());
  const int64_t most = collects_ && gives_ ? kBlockSize / element_ : count;
  for (const int64_t end = at + count; at < end; at += most) {
    const int64_t n = std::min(most, end - at);
    if (collects_) reduce_own(route, at, n);
    if (work_ != nullptr) work_->on_block(route.piece, route.first + at, n);
    if (!gives_) continue;
    const std::byte* const mine = routes_.output(route, me, at);
    for (size_t rank = 0; rank < in_.size(); ++rank)
      if (rank != me) stream_copy(routes_.output(route, rank, at), mine, n * element_);
  }
  if (gives_) stream_fence();
}

/// Elements [begin, end) of a rank's staged ones as one stretch, as they travel: where they lie, if they are of one piece
/// that is to be written and travel as they are, else copied to the engine's block. So small gradients leave and come as
/// whole lines too.
std::byte* Exchange::gather(int32_t rank, int64_t begin, int64_t end) noexcept {
  const auto route = routes_.route_at(rank, begin);
  if (!is_packed() && is_used(route->piece) && end <= route->begin + route->count)
    return routes_.own_input(route->piece, route->first + (begin - route->begin));
  std::byte* block = engine_->block();
  routes_.for_staged(rank, begin, end, [&](const Route& each, int64_t first, int64_t at, int64_t count) {
    const std::byte* const from = routes_.own_input(each.piece, first);
    if (is_packed())
      cpu::pack(rule_, from, said_.own_weight(), block + at * travel_, count);
    else
      std::memcpy(block + at * element_, from, static_cast<size_t>(count * element_));
  });
  return block;
}

/// The way back, of pieces that somebody uses. Outputs of a step are no terms, so they are not packed.
void Exchange::scatter(int32_t rank, int64_t begin, int64_t end, const std::byte* from, bool to_outputs) noexcept {
  const bool packed = is_packed() && (is_shared_ || !to_outputs);
  routes_.for_staged(rank, begin, end, [&](const Route& route, int64_t first, int64_t at, int64_t count) {
    if (!is_used(route.piece)) return;
    std::byte* const to = to_outputs ? routes_.own_output(route.piece, first) : routes_.own_input(route.piece, first);
    if (packed)
      cpu::unpack(rule_, from + at * travel_, to, count);
    else
      std::memcpy(to, from + at * element_, static_cast<size_t>(count * element_));
  });
}

// What this rank will reduce itself is read where it lies, so only the others' parts travel.
void Exchange::fill(uint64_t k, uint64_t chunk) noexcept {
  std::byte* const stage = engine_->stage(engine_->rank(), chunk);
  for (int32_t rank = 0; rank < engine_->size() && said_.own_weight() > 0; ++rank) {
    if (rank == engine_->rank()) continue;
    std::byte* const lane = lane_of(stage, rank);
    in_blocks(rank, k, [&](int64_t from, int64_t to) {
      engine_->count_sent((to - from) * travel_);
      stream_copy(lane + (from - chunk_begin(k)) * travel_, gather(rank, from, to), (to - from) * travel_);
    });
  }
}

void Exchange::reduce(uint64_t k, uint64_t chunk) noexcept {
  if (collects_ && routes_.reads_directly())
    reduce_directly(k);
  else if (collects_)
    reduce_staged(k, chunk);
  if (gives_ && !is_shared_) give_staged(k, chunk);
}

void Exchange::reduce_staged(uint64_t k, uint64_t chunk) noexcept {
  const int32_t me = engine_->rank();
  in_blocks(me, k, [&](int64_t from, int64_t to) {
    const int64_t offset = (from - chunk_begin(k)) * travel_;
    std::byte* const mine = gather(me, from, to);
    const int32_t inputs = list_inputs([&](size_t at) -> const void* {
      const auto rank = static_cast<int32_t>(at);
      return rank == me ? mine : lane_of(engine_->stage(rank, chunk), me) + offset;
    });
    void* out = mine;
    cpu::reduce(is_packed() ? rule_.packed() : rule_, in_.data(), inputs, &out, 1, to - from,
                is_packed() ? nullptr : said_.weights());
    if (is_shared_) {
      engine_->count_sent((to - from) * travel_);
      stream_copy(engine_->result(me, chunk) + offset, mine, (to - from) * travel_);
    }
    if (mine == engine_->block()) scatter(me, from, to, mine, false);
  });
}

void Exchange::reduce_directly(uint64_t k) noexcept {
  const int64_t most = kBlockSize / element_;
  routes_.for_staged(engine_->rank(), chunk_begin(k), chunk_begin(k) + lane_,
                     [&](const Route& route, int64_t first, int64_t, int64_t count) {
                       if (!is_used(route.piece)) return;
                       const int64_t end = first - route.first + count;
                       for (int64_t at = first - route.first; at < end; at += most)
                         reduce_own(route, at, std::min(most, end - at));
                     });
}

void Exchange::give_staged(uint64_t k, uint64_t chunk) noexcept {
  std::byte* const result = engine_->result(engine_->rank(), chunk);
  routes_.for_staged(engine_->rank(), chunk_begin(k), chunk_begin(k) + lane_,
                     [&](const Route& route, int64_t first, int64_t at, int64_t count) {
                       if (!is_used(route.piece)) return;
                       if (work_ != nullptr) work_->on_block(route.piece, first, count);
                       stream_copy(result + at * element_, routes_.own_output(route.piece, first), count * element_);
                     });
}

void Exchange::take(uint64_t k, uint64_t chunk) noexcept {
  for (int32_t rank = 0; rank < engine_->size(); ++rank)
    if (rank != engine_->rank()) scatter(rank, chunk_begin(k), chunk_begin(k) + lane_, engine_->result(rank, chunk), true);
}

// Chunks do not end where blocks do, so work that sees no chunk comes after all of them.
void Exchange::show() noexcept {
  shown_ = true;
  for (const Route& route : routes_.staged(engine_->rank()))
    if (is_used(route.piece)) work_->on_block(route.piece, route.first, route.count);
}

/// Nobody reads the others' memory any more, nor writes into it.
void Exchange::release_when_read() noexcept {
  if (released_ || !in_place_done_ || (routes_.reads_directly() && !chunks_.all_reduced())) return;
  released_ = true;
  engine_->advance(Counter::kFinished, said_.sequence());
}

bool Exchange::complete() noexcept {
  return released_ && shown_ && chunks_.done() &&
         (!routes_.touches_others() || engine_->all_reached(Counter::kFinished, said_.sequence()));
}

collective::Progress Exchange::advance(int64_t budget_bytes) {
  if (state_ == State::kDone || state_ == State::kIdle) return collective::Progress::kDone;
  if (state_ == State::kStarted && !try_announce()) return collective::Progress::kWaiting;
  if (state_ == State::kAnnounced) {
    if (!said_.all_shown()) return collective::Progress::kWaiting;
    said_.read();
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
    case State::kAnnounced: return said_.all_shown();
    case State::kWorking: break;
  }
  return !in_place_done_ || complete() || chunks_.can_move();
}

void Exchange::finish() {
  while (advance(INT64_MAX) != collective::Progress::kDone)
    if (!can_move()) engine_->wait([this] { return can_move(); }, said_.sequence());
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
