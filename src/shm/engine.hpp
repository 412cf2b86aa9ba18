// SPDX-License-Identifier: Apache-2.0
// The common part of every collective over shared memory: numbering, announcing, comparing stamps, counters of all ranks,
// and the staging slots. One engine per group and rank.
// Threads: one at a time, except for next_sequence, take_chunks and try_announce (the thread that starts a bucket) and
// wake(). Tested by conformance/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "exchange/open_queues.hpp"
#include "exchange/waits.hpp"
#include "os/memory.hpp"
#include "shm/mesh.hpp"
#include "shm/page.hpp"
#include "shm/waiter.hpp"

namespace ddp::shm {

class Engine;

// Stage and result slots, numbered over all collectives of a channel: chunk k uses slot k % kStageDepth.
// Threads: one at a time, as Engine.
class StageRing {
 public:
  explicit StageRing(Engine& engine) noexcept : engine_(engine) {}

  /// Take `count` chunk numbers; returns the one before the first.
  uint64_t take(uint64_t count) noexcept;
  [[nodiscard]] std::byte* stage(int32_t of, uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* result(int32_t of, uint64_t chunk) const noexcept;
  /// May this rank overwrite its stage slot for `chunk`?
  [[nodiscard]] bool stage_free(uint64_t chunk) noexcept;
  [[nodiscard]] bool result_free(uint64_t chunk) noexcept;
  /// All ranks read the stage slot of `chunk` until all have reached it in `until`.
  void use_stage(uint64_t chunk, Counter until) noexcept;

 private:
  struct Use {
    Counter until = Counter::kTaken;
    uint64_t chunk = 0;
  };

  Engine& engine_;
  uint64_t taken_ = 0;
  std::array<Use, kStageDepth> uses_{};
};

inline constexpr int64_t kBlockSize = 32 << 10;  // in the first-level cache: gathered, reduced and sent on before it leaves

class Engine {
 public:
  Engine(Mesh mesh, const collective::TransportContext& context);

  [[nodiscard]] const Mesh& mesh() const noexcept { return mesh_; }
  [[nodiscard]] Mesh& mesh() noexcept { return mesh_; }
  [[nodiscard]] int32_t rank() const noexcept { return mesh_.rank; }
  [[nodiscard]] int32_t size() const noexcept { return mesh_.size; }
  /// Of a sum over the ranks.
  [[nodiscard]] const LeafMap& leaves() const noexcept { return leaves_; }

  /// The next collective's number.
  [[nodiscard]] uint64_t next_sequence() noexcept {
    calls_.join_collective(++sequence_, context_.channel);
    return sequence_;
  }

  [[nodiscard]] const Slot& slot(int32_t of, uint64_t sequence) const noexcept { return mesh_.page(of).slot(sequence); }

  /// Fill the own slot and show it, if it is free again on all ranks and every earlier collective was announced. May run in
  /// parallel with the thread that drives buckets: an early announcement lets the other ranks continue.
  template <class Fill>
  [[nodiscard]] bool try_announce(uint64_t sequence, Fill&& fill) {
    const std::lock_guard lock(announcing_);
    if (announced_.last + 1 != sequence || !slot_free(sequence)) return false;
    Slot& slot = mesh_.own_page().slot(sequence);
    slot.offset = kNotInReach;
    fill(slot);
    slot.stamp.sequence = sequence;
    announced_.last = sequence;
    mesh_.own_page().announced.store(sequence, std::memory_order_relaxed);
    waiter_.publish(slot.shown, sequence);
    return true;
  }

  /// Throws DIFFERENT_CALLS, the same on all ranks, unless all stamps of `sequence` are equal. All ranks must have
  /// announced.
  void check_stamps(uint64_t sequence) const;

  /// Have all ranks announced it? This number of bytes of each one's payload is prefetched meanwhile, as early as that is of
  /// use.
  [[nodiscard]] bool all_shown(uint64_t sequence, int64_t payload_bytes = 0) noexcept;

  /// Announce with `fill(slot)`, wait for all ranks, compare stamps. For blocking collectives; returns the number.
  /// `payload_bytes`: of every rank's payload, if this rank will read them.
  template <class Fill>
  uint64_t meet(const collective::Stamp& stamp, int64_t payload_bytes, Fill&& fill) {
    const uint64_t sequence = next_sequence();
    const auto announce = [&] {
      return try_announce(sequence, [&](Slot& slot) {
        slot.stamp = stamp;
        collective::sign(slot.stamp, calls_, context_.channel);
        fill(slot);
      });
    };
    if (!announce()) wait(announce, sequence);
    wait([&] { return all_shown(sequence, payload_bytes); }, sequence);
    check_stamps(sequence);
    return sequence;
  }

  /// This rank has read its data from a blocking collective's slots. No rank waits for that, so none is woken (README.md,
  /// "Rules").
  void leave(uint64_t sequence) noexcept { mesh_.own_page().finished.store(sequence, std::memory_order_release); }
  /// Publish an own counter.
  void advance(Counter counter, uint64_t value) noexcept { waiter_.publish(*own_[static_cast<size_t>(counter)], value); }
  /// Has every rank's counter come to `value`?
  [[nodiscard]] bool all_reached(Counter counter, uint64_t value) noexcept;
  [[nodiscard]] bool reached(int32_t of, Counter counter, uint64_t value) noexcept;

  /// Wait for `ready`, which notes the missing ranks at each look; the collective's number is for the error text.
  template <class Ready>
  void wait(Ready&& ready, uint64_t sequence, Behind behind = Behind::kNobody) {
    const auto ready_or_help = [&] {
      while (!ready())
        if (!help_others()) return false;
      return true;
    };
    waits_.late.store(-1, std::memory_order_relaxed);
    const int64_t begin = waiter_.wait(
        ready_or_help, [&] { return timed_out(sequence); }, behind, sequence);
    waits_.last = begin == 0 ? collective::Late{} : note_wait(begin, behind);
  }
  /// The rank of the group for which the last wait was, and how long.
  [[nodiscard]] const collective::Late& waited() const noexcept { return waits_.last; }

  /// Between the last access to memory of other ranks and the counter that tells of it: throws PEER_FAILED, or the first
  /// cause, if a rank has made memory private, because what was read there or written to it may be lost. So an operation
  /// that ends on one rank ends on all.
  void check_in_reach() const;

  [[nodiscard]] StageRing& stages() noexcept { return stages_; }

  /// Private memory of kBlockSize bytes, for the thread that drives a collective.
  [[nodiscard]] std::byte* block() const noexcept { return block_.data(); }

  /// For Transport::sent_bytes.
  void count_sent(int64_t bytes) noexcept { sent_bytes_ += bytes; }
  [[nodiscard]] int64_t sent_bytes() const noexcept { return sent_bytes_; }

  void wake() const noexcept { waiter_.wake(); }
  [[nodiscard]] Error timed_out(uint64_t sequence) const;

 private:
  [[nodiscard]] static std::atomic<uint64_t>& counter_of(Page& page, Counter counter) noexcept;
  [[nodiscard]] bool slot_free(uint64_t sequence) noexcept;
  collective::Late note_wait(int64_t begin_ns, Behind behind) noexcept;
  /// `rank` has not come yet.
  bool misses(int32_t rank) noexcept {
    waits_.late.store(rank, std::memory_order_relaxed);
    return false;
  }
  /// While this channel waits: some work on the buckets of other channels. False if there was none.
  [[nodiscard]] bool help_others() const noexcept {
    return context_.queues != nullptr && context_.queues->poke_others(context_.channel);
  }

  Mesh mesh_;
  collective::TransportContext context_;
  const LeafMap leaves_;
  Waiter waiter_;
  bootstrap::CallState& calls_;
  std::array<std::atomic<uint64_t>*, 4> own_{};
  std::vector<std::array<uint64_t, 4>> seen_;  // last values read, by rank
  /// What all_shown() looked at last.
  struct Shown {
    uint64_t sequence = 0;
    int32_t by = 0;  // ranks below this one have shown it
  } shown_;
  struct {
    std::atomic<int32_t> late{-1};  // the missing rank at the last look; try_announce may run during a wait
    collective::Late last;
  } waits_;
  uint64_t sequence_ = 0;
  std::mutex announcing_;  // guards announced_ and the writing of the own slots
  struct {
    uint64_t last = 0;
    uint64_t finished_by_all = 0;
  } announced_;
  int64_t sent_bytes_ = 0;
  os::LargeArray block_{static_cast<size_t>(kBlockSize), "a block for small gradients"};
  StageRing stages_{*this};
};

}  // namespace ddp::shm
