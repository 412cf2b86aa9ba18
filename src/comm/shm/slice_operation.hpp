// What the operations on slices share: announce, meet, work, tell that the own part is finished, wait until nobody touches the own
// memory any more. A state machine like Reduction; the derived class does the work.
// Threads: one at a time.
// Tested by process/fused_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/shm/announcement.hpp"
#include "comm/shm/engine.hpp"
#include "comm/shm/slice_map.hpp"

namespace ddp::shm {

class SliceOperation : public BucketOperation {
 public:
  void start(const Note& mine) final;
  [[nodiscard]] Progress advance(int64_t budget_bytes) final;
  void finish() final;
  [[nodiscard]] bool share_done() const noexcept final;
  [[nodiscard]] const Note& note() const noexcept final { return said_.note(); }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept final { return map_.set_address(piece, data); }
  [[nodiscard]] std::string way() const final { return map_.way(); }

 protected:
  SliceOperation(Engine& engine, SliceMap map, const Stamp& stamp, size_t pieces, int64_t chunk_elements, SliceWork* work);

  /// Up to `count` elements from `at` of a route in place.
  virtual void work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept = 0;
  /// Staged work; false if nothing could be done now.
  [[nodiscard]] virtual bool work_staged(int64_t* budget) = 0;
  [[nodiscard]] virtual bool staged_can_move() noexcept = 0;
  [[nodiscard]] virtual bool staged_done() const noexcept = 0;
  /// Forget the last pass.
  virtual void reset() noexcept = 0;

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] const SliceMap& map() const noexcept { return map_; }
  [[nodiscard]] SliceWork* work() const noexcept { return work_; }
  [[nodiscard]] const Announcement& said() const noexcept { return said_; }
  [[nodiscard]] bool is_used(int32_t piece) const noexcept { return said_.is_used(static_cast<size_t>(piece)); }
  [[nodiscard]] uint64_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] uint64_t first_chunk() const noexcept { return first_chunk_; }
  /// Elements of chunk k that `rank` owns, and where they begin among its staged elements.
  [[nodiscard]] int64_t chunk_count(int32_t rank, uint64_t k) const noexcept;
  [[nodiscard]] int64_t chunk_begin(uint64_t k) const noexcept { return static_cast<int64_t>(k) * chunk_elements_; }

 private:
  enum class State { kIdle, kStarted, kAnnounced, kWorking, kDone };

  bool try_announce() noexcept;
  void begin_work() noexcept;
  [[nodiscard]] bool advance_in_place(int64_t* budget);
  [[nodiscard]] bool can_move() noexcept;
  [[nodiscard]] bool complete() noexcept;

  Engine* engine_;
  SliceMap map_;
  Announcement said_;
  SliceWork* work_;
  int64_t chunk_elements_;
  uint64_t chunks_ = 0;  // staged chunks of one pass

  State state_ = State::kIdle;
  uint64_t first_chunk_ = 0;
  size_t route_ = 0;  // next in place
  int64_t at_ = 0;    // next element of that route
  bool share_published_ = false;
};

}  // namespace ddp::shm
