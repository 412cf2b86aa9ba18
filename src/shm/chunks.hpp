// SPDX-License-Identifier: Apache-2.0
// The staged chunks of one exchange, and the order in which a rank works on them:
//   fill    the others' parts of a chunk into the own stage slot       (if the exchange collects)
//   reduce  the own part: added up from all stage slots, worked on, and put into the own result slot  (if it gives)
//   take    the others' parts from their result slots                  (if it gives)
// Chunk k + 1 is filled while the others still work on chunk k. Every rank advances all three counters by the same numbers,
// whatever it does (README.md, "Rules"). Threads: one at a time. Tested by conformance/.
#pragma once

#include <cstdint>

#include "device/cpu/stream.hpp"
#include "shm/engine.hpp"

namespace ddp::shm {

class Chunks {
 public:
  static constexpr int32_t kAll = -1;
  /// `giver`: the one rank that gives anything, or kAll.
  Chunks(Engine& engine, bool collects, bool gives, int32_t giver = kAll) noexcept
      : engine_(&engine), collects_(collects), gives_(gives), giver_(giver) {}

  /// Take the numbers of `count` chunks.
  void begin(uint64_t count) noexcept {
    count_ = count;
    first_ = engine_->stages().take(count) + 1;
    filled_ = reduced_ = taken_ = 0;
  }
  /// Nothing is done in this exchange, by all ranks alike.
  void pass_over() noexcept {
    filled_ = reduced_ = taken_ = count_;
    if (count_ == 0) return;
    for (const Counter counter : {Counter::kFilled, Counter::kReduced, Counter::kTaken})
      engine_->advance(counter, first_ + count_ - 1);
  }

  [[nodiscard]] uint64_t count() const noexcept { return count_; }
  [[nodiscard]] bool all_reduced() const noexcept { return reduced_ == count_; }
  [[nodiscard]] bool done() const noexcept { return taken_ == count_; }
  [[nodiscard]] bool can_move() noexcept { return can_fill() || can_reduce() || can_take(); }

  /// work.fill(k, chunk), work.reduce(k, chunk) and work.take(k, chunk), as far as the others have come and the budget
  /// lasts; `k` counts from 0, `chunk` is its number for the slots. False if nothing could be done now.
  template <class Work>
  bool advance(Work&& work, int64_t* budget) {
    bool moved = false;
    while (taken_<count_&& * budget> 0) {
      const int64_t before = *budget;
      // Fill ahead first, so that the others find this rank's chunk when they come.
      if (can_fill()) fill(work, budget);
      if (can_reduce()) reduce(work, budget);
      if (can_take()) take(work, budget);
      if (*budget == before) break;
      moved = true;
    }
    return moved;
  }

  /// All of them, for a blocking collective.
  template <class Work>
  void finish(Work&& work, uint64_t sequence) {
    while (!done()) {
      int64_t budget = INT64_MAX;
      if (!advance(work, &budget)) engine_->wait([this] { return can_move(); }, sequence);
    }
  }

 private:
  [[nodiscard]] bool can_fill() noexcept {
    return collects_ && filled_ < count_ && engine_->stages().stage_free(first_ + filled_);
  }
  [[nodiscard]] bool can_reduce() noexcept {
    if (reduced_ == count_ || (gives_ && !engine_->stages().result_free(first_ + reduced_))) return false;
    return !collects_ || (reduced_ < filled_ && engine_->all_reached(Counter::kFilled, first_ + reduced_));
  }
  [[nodiscard]] bool can_take() noexcept {
    if (!gives_ || taken_ == reduced_) return false;
    const uint64_t chunk = first_ + taken_;
    return giver_ == kAll ? engine_->all_reached(Counter::kReduced, chunk)
                          : engine_->reached(giver_, Counter::kReduced, chunk);
  }

  template <class Work>
  void fill(Work& work, int64_t* budget) {
    const uint64_t chunk = first_ + filled_;
    work.fill(filled_++, chunk);
    cpu::stream_fence();
    engine_->stages().use_stage(chunk, Counter::kReduced);
    engine_->advance(Counter::kFilled, chunk);
    *budget -= kStageBytes / 2;
  }
  template <class Work>
  void reduce(Work& work, int64_t* budget) {
    const uint64_t chunk = first_ + reduced_;
    work.reduce(reduced_++, chunk);
    cpu::stream_fence();
    if (!collects_) engine_->advance(Counter::kFilled, chunk);
    engine_->advance(Counter::kReduced, chunk);
    if (!gives_) engine_->advance(Counter::kTaken, first_ + taken_++);
    *budget -= kStageBytes / 2;
  }
  template <class Work>
  void take(Work& work, int64_t* budget) {
    const uint64_t chunk = first_ + taken_;
    work.take(taken_++, chunk);
    engine_->advance(Counter::kTaken, chunk);
    *budget -= kStageBytes / 2;
  }

  Engine* engine_;
  bool collects_;
  bool gives_;
  int32_t giver_;
  uint64_t count_ = 0;
  uint64_t first_ = 0;
  uint64_t filled_ = 0;
  uint64_t reduced_ = 0;
  uint64_t taken_ = 0;
};

/// The three steps of a blocking collective as lambdas.
template <class Fill, class Reduce, class Take>
struct ChunkWork {
  Fill fill;
  Reduce reduce;
  Take take;
};
template <class Fill, class Reduce, class Take>
ChunkWork(Fill, Reduce, Take) -> ChunkWork<Fill, Reduce, Take>;

}  // namespace ddp::shm
