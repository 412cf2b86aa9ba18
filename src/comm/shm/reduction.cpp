#include "comm/shm/reduction.hpp"

#include <algorithm>
#include <cstring>

#include "comm/shm/stream.hpp"

namespace ddp::shm {
namespace {
constexpr int64_t kBlockBytes = 256 << 10;  // of one input: between two looks at the budget
}

Reduction::Reduction(Engine& engine, const BucketSpec& spec, const std::vector<PieceReach>& reach)
    : engine_(&engine), rule_(spec.rule), said_(engine, stamp_of(Collective::kBucket, spec), spec.pieces.size()), element_(dtype_size(spec.rule.dtype)),
      travel_(dtype_size(spec.rule.travel_dtype())), piece_count_(static_cast<int32_t>(spec.pieces.size())) {
  const auto size = static_cast<size_t>(engine.size());
  in_.resize(size);
  out_.resize(size);
  for (size_t piece = 0; piece < spec.pieces.size(); ++piece) {
    const BucketSpec::Piece& lent = spec.pieces[piece];
    bool in_reach = true;
    for (size_t rank = 0; rank < size; ++rank) in_reach = in_reach && reach[rank * spec.pieces.size() + piece].offset != kNotInReach;
    if (in_reach) {
      place_.push_back(static_cast<int32_t>(in_place_pieces_.size()));
      add_in_place(reach, piece, lent.count);
    } else {
      place_.push_back(-1 - static_cast<int32_t>(staged_.size()));
      staged_.push_back(Run{staged_count_, lent.count, 0, lent.data, true, false});
      staged_count_ += lent.count;
    }
  }
  share_ = share_of(in_place_count_, element_, engine.rank(), engine.size());
  const int64_t chunk_elements = kStageBytes / travel_;
  chunks_ = static_cast<uint64_t>((staged_count_ + chunk_elements - 1) / chunk_elements);
}

void Reduction::add_in_place(const std::vector<PieceReach>& reach, size_t piece, int64_t count) {
  const auto size = static_cast<size_t>(engine_->size());
  const auto pieces = static_cast<size_t>(piece_count_);
  const size_t first = bases_.size();
  bool padded = true;  // libddp's own memory on every rank: what lies between two gradients is padding
  for (size_t rank = 0; rank < size; ++rank) {
    const PieceReach& there = reach[rank * pieces + piece];
    bases_.push_back(engine_->mesh().base(static_cast<int32_t>(rank)) + there.offset);
    padded = padded && there.owned != 0;
  }
  in_place_pieces_.push_back(Run{in_place_count_, count, first, nullptr, true, padded});
  if (int64_t gap = 0; !in_place_.empty() && follows(in_place_.back(), first, padded, &gap)) {
    in_place_count_ += gap / element_;
    in_place_pieces_.back().begin = in_place_count_;
    in_place_.back().count += gap / element_ + count;
  } else {
    in_place_.push_back(in_place_pieces_.back());
  }
  in_place_count_ += count;
}

// Pieces that follow one another on every rank are one stretch, so that the reduction of many small gradients is one long loop. In
// libddp's own memory the padding between two of them (below a cache line) belongs to it: zero on all ranks, and it stays zero.
bool Reduction::follows(const Run& last, size_t first, bool padded, int64_t* gap) const noexcept {
  const int64_t length = last.count * element_;
  *gap = bases_[first] - bases_[last.peers] - length;
  if (*gap < 0 || *gap % element_ != 0 || *gap >= (padded && last.padded ? 64 : 1)) return false;
  for (size_t rank = 0; rank < in_.size(); ++rank)
    if (bases_[first + rank] - bases_[last.peers + rank] != length + *gap) return false;
  return true;
}

void Reduction::start(const Note& mine) {
  said_.start(mine);
  first_chunk_ = engine_->take_chunks(chunks_) + 1;
  state_ = State::kStarted;
  (void)try_announce();
}

bool Reduction::try_announce() noexcept {
  const bool done = said_.try_show();
  if (done) state_ = State::kAnnounced;
  return done;
}

void Reduction::begin_work() noexcept {
  rule_.weight_sum = note().tally.weight;
  all_used_ = true;
  for (int32_t piece = 0; piece < piece_count_; ++piece) {
    const auto at = static_cast<size_t>(piece);
    const bool used = said_.is_used(at);
    all_used_ = all_used_ && used;
    const int32_t place = place_[at];
    (place >= 0 ? in_place_pieces_[static_cast<size_t>(place)] : staged_[static_cast<size_t>(-1 - place)]).used = used;
  }
  const bool is_void = note().is_void();
  at_ = is_void ? share_.end : share_.begin;
  share_published_ = false;
  filled_ = reduced_ = taken_ = 0;
  if (is_void && chunks_ > 0) {  // void: the chunk numbers are passed over by all ranks alike
    filled_ = reduced_ = taken_ = chunks_;
    const uint64_t last = first_chunk_ + chunks_ - 1;
    engine_->advance(Counter::kFilled, last);
    engine_->advance(Counter::kReduced, last);
    engine_->advance(Counter::kTaken, last);
  }
  state_ = State::kReducing;
}

bool Reduction::work_in_place(int64_t* budget) {
  if (share_published_) return false;
  const std::vector<Run>& runs = all_used_ ? in_place_ : in_place_pieces_;
  const std::vector<size_t>& inputs = said_.inputs();
  auto run = std::partition_point(runs.begin(), runs.end(), [&](const Run& r) { return r.begin + r.count <= at_; });
  while (at_ < share_.end && *budget > 0) {
    if (run == runs.end()) break;
    at_ = std::max(at_, run->begin);  // over padding
    const int64_t count = std::min({run->begin + run->count, share_.end, at_ + kBlockBytes / element_}) - at_;
    if (count > 0 && run->used) {
      for (size_t rank = 0; rank < out_.size(); ++rank) out_[rank] = bases_[run->peers + rank] + (at_ - run->begin) * element_;
      for (size_t k = 0; k < inputs.size(); ++k) in_[k] = out_[inputs[k]];
      cpu::reduce(rule_, in_.data(), static_cast<int32_t>(inputs.size()), out_.data(), engine_->size(), count, said_.weights());
      *budget -= count * element_;
    }
    at_ += std::max<int64_t>(count, 0);
    if (at_ >= run->begin + run->count) ++run;
  }
  if (at_ < share_.end && run != runs.end()) return true;
  share_published_ = true;
  engine_->advance(Counter::kFinished, said_.sequence());
  return true;
}

int64_t Reduction::chunk_begin(uint64_t k) const noexcept { return static_cast<int64_t>(k) * (kStageBytes / travel_); }

int64_t Reduction::chunk_count(uint64_t k) const noexcept { return std::min(kStageBytes / travel_, staged_count_ - chunk_begin(k)); }

template <class Copy>
void Reduction::for_staged(int64_t begin, int64_t end, Copy&& copy) const {
  auto run = std::partition_point(staged_.begin(), staged_.end(), [&](const Run& r) { return r.begin + r.count <= begin; });
  for (; run != staged_.end() && run->begin < end; ++run) {
    const int64_t from = std::max(begin, run->begin);
    const int64_t to = std::min(end, run->begin + run->count);
    if (from < to) copy(run->data + (from - run->begin) * element_, from - begin, to - from, run->used);
  }
}

/// Elements [begin, end) of the staged ones as one stretch, as they travel: where they lie, if they are of one piece that is to be written and
/// travel as they are, else copied to the engine's block. So small gradients leave and come as whole lines too.
std::byte* Reduction::gather(int64_t begin, int64_t end) const noexcept {
  const auto run = std::partition_point(staged_.begin(), staged_.end(), [&](const Run& r) { return r.begin + r.count <= begin; });
  if (!is_packed() && run->used && end <= run->begin + run->count) return run->data + (begin - run->begin) * element_;
  std::byte* block = engine_->block();
  for_staged(begin, end, [&](const std::byte* data, int64_t at, int64_t count, bool) {
    if (is_packed())
      cpu::pack(rule_, data, said_.own_weight(), block + at * travel_, count);
    else
      std::memcpy(block + at * element_, data, static_cast<size_t>(count * element_));
  });
  return block;
}

void Reduction::scatter(int64_t begin, int64_t end, const std::byte* from) const noexcept {
  for_staged(begin, end, [&](std::byte* data, int64_t at, int64_t count, bool used) {
    if (!used) return;
    if (is_packed())
      cpu::unpack(rule_, from + at * travel_, data, count);
    else
      std::memcpy(data, from + at * element_, static_cast<size_t>(count * element_));
  });
}

/// step(begin, end) for [begin, end) in blocks.
template <class Step>
void Reduction::in_blocks(int64_t begin, int64_t end, Step&& step) const {
  const int64_t most = kBlockSize / travel_;
  for (; begin < end; begin += most) step(begin, std::min(end, begin + most));
}

// What this rank will reduce itself is read where it lies, so only the others' parts travel.
void Reduction::fill_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk_ + k;
  const int64_t begin = chunk_begin(k);
  const Share own = share_of(chunk_count(k), travel_, engine_->rank(), engine_->size());
  std::byte* stage = engine_->stage(engine_->rank(), chunk);
  const auto show = [&](int64_t from, int64_t to) {
    engine_->count_sent((to - from) * travel_);
    stream_copy(stage + (from - begin) * travel_, gather(from, to), (to - from) * travel_);
  };
  if (said_.own_weight() > 0) {
    in_blocks(begin, begin + own.begin, show);
    in_blocks(begin + own.end, begin + chunk_count(k), show);
  }
  stream_fence();
  engine_->use_stage(chunk, Counter::kReduced);
  engine_->advance(Counter::kFilled, chunk);
}

void Reduction::reduce_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk_ + k;
  const int64_t begin = chunk_begin(k);
  const Share own = share_of(chunk_count(k), travel_, engine_->rank(), engine_->size());
  const auto rank = static_cast<size_t>(engine_->rank());
  const std::vector<size_t>& inputs = said_.inputs();
  in_blocks(begin + own.begin, begin + own.end, [&](int64_t from, int64_t to) {
    const int64_t offset = (from - begin) * travel_;
    std::byte* mine = gather(from, to);
    for (size_t i = 0; i < inputs.size(); ++i)
      in_[i] = inputs[i] == rank ? mine : engine_->stage(static_cast<int32_t>(inputs[i]), chunk) + offset;
    out_[0] = mine;
    const bool packed = is_packed();
    cpu::reduce(packed ? rule_.packed() : rule_, in_.data(), static_cast<int32_t>(inputs.size()), out_.data(), 1, to - from,
                packed ? nullptr : said_.weights());
    engine_->count_sent((to - from) * travel_);
    stream_copy(engine_->result(engine_->rank(), chunk) + offset, mine, (to - from) * travel_);
    if (mine == engine_->block()) scatter(from, to, mine);
  });
  stream_fence();
  engine_->advance(Counter::kReduced, chunk);
}

void Reduction::take_chunk(uint64_t k) noexcept {
  const uint64_t chunk = first_chunk_ + k;
  const int64_t begin = chunk_begin(k);
  for (int32_t rank = 0; rank < engine_->size(); ++rank) {
    if (rank == engine_->rank()) continue;  // reduced in its place
    const Share part = share_of(chunk_count(k), travel_, rank, engine_->size());
    scatter(begin + part.begin, begin + part.end, engine_->result(rank, chunk) + part.begin * travel_);
  }
  engine_->advance(Counter::kTaken, chunk);
}

bool Reduction::work_staged(int64_t* budget) {
  bool moved = false;
  while (taken_ < chunks_ && *budget > 0) {
    const int64_t before = *budget;
    // Fill ahead first, so that the others find this rank's chunk when they come.
    if (filled_ < chunks_ && filled_ < taken_ + static_cast<uint64_t>(kStageDepth) && engine_->stage_free(first_chunk_ + filled_)) {
      fill_chunk(filled_++);
      *budget -= kStageBytes / 2;
    }
    if (reduced_ < filled_ && engine_->all_reached(Counter::kFilled, first_chunk_ + reduced_) &&
        engine_->result_free(first_chunk_ + reduced_)) {
      reduce_chunk(reduced_++);
      *budget -= kStageBytes / 2;
    }
    if (taken_ < reduced_ && engine_->all_reached(Counter::kReduced, first_chunk_ + taken_)) {
      take_chunk(taken_++);
      *budget -= kStageBytes / 2;
    }
    if (*budget == before) break;
    moved = true;
  }
  return moved;
}

bool Reduction::complete() noexcept {
  return share_published_ && taken_ == chunks_ && (in_place_count_ == 0 || engine_->all_reached(Counter::kFinished, said_.sequence()));
}

Progress Reduction::advance(int64_t budget_bytes) {
  if (state_ == State::kDone || state_ == State::kIdle) return Progress::kDone;
  if (state_ == State::kStarted && !try_announce()) return Progress::kWaiting;
  if (state_ == State::kAnnounced) {
    if (!said_.all_shown()) return Progress::kWaiting;
    said_.read();
    begin_work();
  }
  int64_t budget = budget_bytes;
  bool moved = work_in_place(&budget);
  if (share_published_) moved = work_staged(&budget) || moved;
  if (complete()) {
    state_ = State::kDone;
    return Progress::kDone;
  }
  return moved ? Progress::kAdvanced : Progress::kWaiting;
}

bool Reduction::can_move() noexcept {
  switch (state_) {
    case State::kIdle:
    case State::kDone: return true;
    case State::kStarted: return try_announce();
    case State::kAnnounced: return said_.all_shown();
    case State::kReducing: break;
  }
  if (!share_published_ || complete()) return true;
  if (filled_ < chunks_ && filled_ < taken_ + static_cast<uint64_t>(kStageDepth) && engine_->stage_free(first_chunk_ + filled_))
    return true;
  if (reduced_ < filled_ && engine_->all_reached(Counter::kFilled, first_chunk_ + reduced_) &&
      engine_->result_free(first_chunk_ + reduced_))
    return true;
  return taken_ < reduced_ && engine_->all_reached(Counter::kReduced, first_chunk_ + taken_);
}

void Reduction::finish() {
  while (advance(INT64_MAX) != Progress::kDone)
    if (!can_move()) engine_->wait([this] { return can_move(); }, said_.sequence());
}

bool Reduction::share_done() const noexcept {
  return state_ == State::kDone || state_ == State::kIdle || (state_ == State::kReducing && share_published_ && chunks_ == 0);
}

bool Reduction::set_address(int32_t piece, std::byte* data) noexcept {
  const int32_t place = place_[static_cast<size_t>(piece)];
  if (place >= 0) return false;
  staged_[static_cast<size_t>(-1 - place)].data = data;
  return true;
}

void Reduction::populate_share() const noexcept {
  for (const Run& run : in_place_) {
    const int64_t from = std::max(run.begin, share_.begin);
    const int64_t to = std::min(run.begin + run.count, share_.end);
    for (size_t rank = 0; rank < in_.size() && from < to; ++rank)
      populate(bases_[run.peers + rank] + (from - run.begin) * element_, (to - from) * element_);
  }
}

std::string Reduction::way() const {
  const std::string as = is_packed() ? std::string(" as ") + dtype_name(rule_.wire) : "";
  if (staged_.empty()) return "in place" + (as.empty() ? as : ", rounded" + as);
  if (in_place_pieces_.empty()) return "staged" + as;
  return std::to_string(in_place_pieces_.size()) + " in place, " + std::to_string(staged_.size()) + " staged" + as;
}

}  // namespace ddp::shm
