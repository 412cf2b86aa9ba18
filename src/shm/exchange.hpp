// SPDX-License-Identifier: Apache-2.0
// One exchange over shared memory, as a state machine that never waits by itself: announce, read all announcements, work in
// place, work on staged chunks, publish that the own part is finished, wait until no other rank touches the own memory any
// more.
//
// In place: the owner adds up its part of all ranks' pieces in the tree, works on it, and writes it into all ranks'
// memory, block by block while it is in cache; one announcement before, one counter after, no copy. Staged: chunks.hpp, past
// the caches (stream.hpp); a rank's own part is read and written in place. Of a rule with two bytes on the wire,
// chunks hold packed terms.
//
// Why a step may write outputs before every rank has reduced: they are the parameters of the bucket's own gradients, and
// every rank's announcement confirms that it is done with them in this pass. Threads: one at a time. Allocates nothing after
// it was made. Tested by conformance/, of a step by conformance/fused_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shm/chunks.hpp"
#include "shm/engine.hpp"
#include "shm/routes.hpp"

namespace ddp::shm {

// The announcement of a rank about a bucket before it works on it, and those of all ranks: the stamp, the bucket header, and
// the weight of each rank's gradients. One for each operation, used again in every pass; allocates nothing after it was
// made. Threads: start() and try_show() from the thread that starts a bucket, the rest from the one that drives it. Tested
// by conformance/.
class Announcement {
 public:
  Announcement(Engine& engine, const collective::Stamp& stamp, size_t pieces);

  /// Take the next number; nothing is shown yet.
  void start(const collective::BucketHeader& mine) noexcept;
  /// False while an earlier bucket was not shown, or the slot is still in use.
  [[nodiscard]] bool try_show() noexcept;
  [[nodiscard]] bool all_shown() noexcept { return engine_->all_shown(sequence_); }
  /// Once all have: from here the bucket header is that of all ranks. Throws DIFFERENT_CALLS.
  void read();

  [[nodiscard]] uint64_t sequence() const noexcept { return sequence_; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept { return header_; }
  [[nodiscard]] bool is_used(size_t piece) const noexcept { return (header_.used[piece / 64] >> (piece % 64) & 1) != 0; }
  /// Do a rank's gradients count? A rank that does not count is no input, and does not move the others' places.
  [[nodiscard]] bool counts(int32_t rank) const noexcept {
    return weights_[static_cast<size_t>(engine_->leaves().position_of(rank))] > 0;
  }
  /// How much each rank's gradients count, by leaf; NULL: all the same that do.
  [[nodiscard]] const double* weights() const noexcept { return weighted_ ? weights_.data() : nullptr; }
  /// 0: this rank's gradients do not count.
  [[nodiscard]] double own_weight() const noexcept { return own_weight_; }

 private:
  void weigh(int32_t peer, double weight) noexcept;

  Engine* engine_;
  collective::Stamp stamp_;
  collective::BucketHeader header_;
  uint64_t sequence_ = 0;
  std::vector<double> weights_;  // of all leaves
  bool weighted_ = false;
  double own_weight_ = 1;
};

class Exchange final : public collective::BucketOperation {
 public:
  Exchange(Engine& engine, const collective::ExchangeSpec& spec, Routes routes);

  void start(const collective::BucketHeader& mine) override;
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override;
  void finish() override;
  [[nodiscard]] bool local_done() const noexcept override;
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return announcement_.header(); }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    return routes_.set_address(piece, data);
  }
  [[nodiscard]] std::string describe() const override;

  // For Chunks.
  void fill(uint64_t k, uint64_t chunk) noexcept;
  void reduce(uint64_t k, uint64_t chunk) noexcept;
  void take(uint64_t k, uint64_t chunk) noexcept;

 private:
  enum class State { kIdle, kStarted, kAnnounced, kWorking, kDone };
  using Route = Routes::Route;

  bool try_announce() noexcept;
  void begin_work() noexcept;
  [[nodiscard]] bool advance_in_place(int64_t* budget);
  void release_when_read();
  [[nodiscard]] bool complete() noexcept;
  [[nodiscard]] bool can_move() noexcept;
  void show() noexcept;

  void reduce_for_all(const Route& route, int64_t at, int64_t count) noexcept;
  void reduce_own(const Route& route, int64_t at, int64_t count) noexcept;
  void work_in_place(const Route& route, int64_t at, int64_t count) noexcept;
  void reduce_staged(uint64_t k, uint64_t chunk) noexcept;
  void reduce_directly(uint64_t k) noexcept;
  void give_staged(uint64_t k, uint64_t chunk) noexcept;
  [[nodiscard]] std::byte* gather(int32_t rank, int64_t begin, int64_t end) noexcept;
  void scatter(int32_t rank, int64_t begin, int64_t end, const std::byte* from, bool to_outputs) noexcept;

  /// What is added: for each rank's leaf the address that `where(rank)` gives; NULL if it does not count. Returns how many
  /// leaves there are.
  template <class Where>
  [[nodiscard]] int32_t list_inputs(Where&& where) noexcept {
    const LeafMap& leaves = engine_->leaves();
    for (int32_t rank = 0; rank < engine_->size(); ++rank)
      in_[static_cast<size_t>(leaves.position_of(rank))] =
          announcement_.counts(rank) ? where(static_cast<size_t>(rank)) : nullptr;
    return static_cast<int32_t>(in_.size());
  }
  /// NULL: inputs are added as they are.
  [[nodiscard]] const double* weights() const noexcept { return rule_.summed ? nullptr : announcement_.weights(); }
  /// Of this rank's input.
  [[nodiscard]] double own_weight() const noexcept { return rule_.summed ? 1 : announcement_.own_weight(); }
  /// step(begin, end) for chunk k of a rank's staged elements, in blocks. Where nothing is copied together and only the
  /// owner writes, a block is as long as its piece.
  template <class Step>
  void in_blocks(int32_t rank, uint64_t k, Step&& step) noexcept {
    const int64_t end = std::min(chunk_begin(k) + shape_.lane, routes_.staged_count(rank));
    for (int64_t at = chunk_begin(k); at < end;) {
      int64_t to = std::min(end, at + kBlockSize / shape_.travel);
      if (!shape_.is_shared && !is_packed())
        if (const auto route = routes_.route_at(rank, at); is_used(route->piece))
          to = std::min(end, std::max(to, route->begin + route->count));
      step(at, to);
      at = to;
    }
  }
  [[nodiscard]] int64_t chunk_begin(uint64_t k) const noexcept { return static_cast<int64_t>(k) * shape_.lane; }
  /// Where the elements of a rank begin in a stage slot.
  [[nodiscard]] std::byte* lane_of(std::byte* stage, int32_t rank) const noexcept {
    return stage + rank * shape_.lane * shape_.travel;
  }
  [[nodiscard]] bool is_used(int32_t piece) const noexcept { return announcement_.is_used(static_cast<size_t>(piece)); }
  [[nodiscard]] bool is_packed() const noexcept { return rule_.is_wired(); }

  Engine* engine_;
  Routes routes_;
  Announcement announcement_;
  cpu::ReduceRule rule_;
  collective::SliceWork work_;
  /// The specification, and values derived from it.
  struct Shape {
    bool collects;
    bool gives;
    bool is_shared;   // without an owner: the adding rank writes to all
    int64_t element;  // bytes in memory
    int64_t travel;   // bytes in a stage slot
    int64_t lane;     // elements of a chunk that one rank owns
    size_t pieces;
    uint64_t chunk_count;
  };
  [[nodiscard]] static Shape shape_of(const collective::ExchangeSpec& spec, int32_t ranks, const Routes& routes) noexcept;

  const Shape shape_;
  Chunks chunks_;
  std::vector<const void*> in_;  // by leaf; NULL where no rank is
  std::vector<void*> out_;       // by rank

  State state_ = State::kIdle;
  bool all_used_ = true;
  bool in_place_done_ = false;
  bool released_ = false;  // this rank touches no other memory any more
  bool shown_ = false;     // the work saw the staged part
  struct Position {
    size_t route = 0;
    int64_t element = 0;  // of that route
  } next_;                // in place
};

}  // namespace ddp::shm
