#include "comm/shm/slice_operation.hpp"

#include <algorithm>

namespace ddp::shm {
namespace {

constexpr int64_t kBlockElements = 16'384;  // a multiple of kSliceUnit; an update's four arrays of this length stay in the second-level cache

}  // namespace

SliceOperation::SliceOperation(Engine& engine, SliceMap map, const Stamp& stamp, size_t pieces, int64_t chunk_elements, SliceWork* work)
    : engine_(&engine), map_(std::move(map)), said_(engine, stamp, pieces), work_(work), chunk_elements_(chunk_elements) {
  chunks_ = static_cast<uint64_t>((map_.most_staged() + chunk_elements - 1) / chunk_elements);
  map_.populate();
}

int64_t SliceOperation::chunk_count(int32_t rank, uint64_t k) const noexcept {
  return std::clamp<int64_t>(map_.staged_count(rank) - chunk_begin(k), 0, chunk_elements_);
}

void SliceOperation::start(const Note& mine) {
  said_.start(mine);
  first_chunk_ = engine_->take_chunks(chunks_) + 1;
  state_ = State::kStarted;
  (void)try_announce();
}

bool SliceOperation::try_announce() noexcept {
  const bool done = said_.try_show();
  if (done) state_ = State::kAnnounced;
  return done;
}

void SliceOperation::begin_work() noexcept {
  route_ = note().is_void() ? map_.in_place().size() : 0;
  at_ = 0;
  share_published_ = false;
  state_ = State::kWorking;
  reset();
  if (!note().is_void() || chunks_ == 0) return;
  const uint64_t last = first_chunk_ + chunks_ - 1;  // void: the chunk numbers are passed over by all ranks alike
  for (const Counter counter : {Counter::kFilled, Counter::kReduced, Counter::kTaken}) engine_->advance(counter, last);
}

bool SliceOperation::advance_in_place(int64_t* budget) {
  if (share_published_) return false;
  const std::vector<SliceMap::Route>& routes = map_.in_place();
  while (route_ < routes.size() && *budget > 0) {
    const SliceMap::Route& route = routes[route_];
    const bool used = is_used(route.piece);
    const int64_t count = used ? std::min(kBlockElements, route.count - at_) : route.count - at_;
    if (used) {
      work_in_place(route, at_, count);
      *budget -= count * map_.element();
    }
    at_ += count;
    if (at_ < route.count) continue;
    ++route_;
    at_ = 0;
  }
  if (route_ < routes.size()) return true;
  share_published_ = true;
  engine_->advance(Counter::kFinished, said_.sequence());
  return true;
}

bool SliceOperation::complete() noexcept {
  return share_published_ && (note().is_void() || staged_done()) &&
         (!map_.any_in_place() || engine_->all_reached(Counter::kFinished, said_.sequence()));
}

Progress SliceOperation::advance(int64_t budget_bytes) {
  if (state_ == State::kDone || state_ == State::kIdle) return Progress::kDone;
  if (state_ == State::kStarted && !try_announce()) return Progress::kWaiting;
  if (state_ == State::kAnnounced) {
    if (!said_.all_shown()) return Progress::kWaiting;
    said_.read();
    begin_work();
  }
  int64_t budget = budget_bytes;
  bool moved = advance_in_place(&budget);
  if (share_published_ && !note().is_void()) moved = work_staged(&budget) || moved;
  if (complete()) {
    state_ = State::kDone;
    return Progress::kDone;
  }
  return moved ? Progress::kAdvanced : Progress::kWaiting;
}

bool SliceOperation::can_move() noexcept {
  switch (state_) {
    case State::kIdle:
    case State::kDone: return true;
    case State::kStarted: return try_announce();
    case State::kAnnounced: return said_.all_shown();
    case State::kWorking: break;
  }
  return !share_published_ || complete() || (!note().is_void() && staged_can_move());
}

void SliceOperation::finish() {
  while (advance(INT64_MAX) != Progress::kDone)
    if (!can_move()) engine_->wait([this] { return can_move(); }, said_.sequence());
}

bool SliceOperation::share_done() const noexcept {
  return state_ == State::kDone || state_ == State::kIdle || (state_ == State::kWorking && share_published_ && chunks_ == 0);
}

}  // namespace ddp::shm
