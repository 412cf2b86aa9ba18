// The reduction of one bucket over shared memory, as a state machine that never waits by itself.
//
// Pieces that lie in library memory on every rank are reduced *in place*: rank r adds its share of all ranks' gradients in rank order
// and writes the result to all of them; one announcement before, one counter after, no copy.
// Other pieces are *staged* through small chunks: every rank copies the others' parts of a chunk into its stage slot, past its caches
// (stream.hpp), reduces its own part where it lies from the others' slots, copies that into its result slot, and takes the other parts from
// theirs; chunk k + 1 is filled while the others still work on chunk k.
// Threads: one at a time.
// Tested by ranks/ and process/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/shm/announcement.hpp"
#include "comm/shm/engine.hpp"
#include "comm/shm/share.hpp"

namespace ddp::shm {

/// Where one rank's piece lies, as the ranks tell each other when the bucket is prepared.
struct PieceReach {
  int64_t offset = kNotInReach;  // in its region; kNotInReach: private memory
  int64_t owned = 0;             // 1: libddp's own memory, padded with zeros to the next piece
};

class Reduction final : public BucketOperation {
 public:
  /// `reach[rank * pieces + piece]`. A piece that is private memory on any rank is staged.
  Reduction(Engine& engine, const BucketSpec& spec, const std::vector<PieceReach>& reach);

  void start(const Note& mine) override;
  [[nodiscard]] Progress advance(int64_t budget_bytes) override;
  void finish() override;
  [[nodiscard]] bool share_done() const noexcept override;
  [[nodiscard]] const Note& note() const noexcept override { return said_.note(); }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  [[nodiscard]] std::string way() const override;

  /// Have the pages mapped that this rank will touch in the others' memory, so that the first pass is no slower than the rest.
  void populate_share() const noexcept;

 private:
  enum class State { kIdle, kStarted, kAnnounced, kReducing, kDone };

  /// A stretch of gradient that is one piece of memory on every rank.
  struct Run {
    int64_t begin = 0;  // position among the in-place (or staged) elements
    int64_t count = 0;
    size_t peers = 0;             // in place: first of `size` entries in bases_
    std::byte* data = nullptr;    // staged: own memory
    bool used = true;             // false: no rank contributes; left untouched
    bool padded = false;          // in place: libddp's own memory on every rank
  };

  void add_in_place(const std::vector<PieceReach>& reach, size_t piece, int64_t count);
  [[nodiscard]] bool follows(const Run& last, size_t first, bool padded, int64_t* gap) const noexcept;
  bool try_announce() noexcept;
  void begin_work() noexcept;
  [[nodiscard]] bool work_in_place(int64_t* budget);
  [[nodiscard]] bool work_staged(int64_t* budget);
  void fill_chunk(uint64_t k) noexcept;
  void reduce_chunk(uint64_t k) noexcept;
  void take_chunk(uint64_t k) noexcept;
  [[nodiscard]] bool can_move() noexcept;
  [[nodiscard]] bool complete() noexcept;
  [[nodiscard]] int64_t chunk_begin(uint64_t k) const noexcept;
  [[nodiscard]] int64_t chunk_count(uint64_t k) const noexcept;
  [[nodiscard]] std::byte* gather(int64_t begin, int64_t end) const noexcept;
  void scatter(int64_t begin, int64_t end, const std::byte* from) const noexcept;
  [[nodiscard]] bool is_packed() const noexcept { return rule_.travel_dtype() != rule_.dtype; }
  template <class Copy>
  void for_staged(int64_t begin, int64_t end, Copy&& copy) const;
  template <class Step>
  void in_blocks(int64_t begin, int64_t end, Step&& step) const;

  Engine* engine_;
  cpu::ReduceRule rule_;
  Announcement said_;
  int64_t element_ = 4;  // bytes where it lies
  int64_t travel_ = 4;   // bytes in a slot
  int32_t piece_count_ = 0;

  std::vector<Run> in_place_;          // merged stretches: the fast way
  std::vector<Run> in_place_pieces_;   // one per piece: taken when some pieces are used by nobody
  std::vector<Run> staged_;            // one per piece
  std::vector<int32_t> place_;         // piece -> position in in_place_pieces_ (>= 0) or -1 - position in staged_
  std::vector<std::byte*> bases_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  int64_t in_place_count_ = 0;
  int64_t staged_count_ = 0;

  State state_ = State::kIdle;
  bool all_used_ = true;
  bool share_published_ = false;
  Share share_;
  int64_t at_ = 0;          // next in-place element of the own share
  uint64_t chunks_ = 0;     // staged chunks of one pass
  uint64_t first_chunk_ = 0;
  uint64_t filled_ = 0;
  uint64_t reduced_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace ddp::shm
