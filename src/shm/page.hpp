// SPDX-License-Identifier: Apache-2.0
// What one rank shows to the others: counters that only grow, and a ring of announcements. It is at the start of the rank's
// region, in memory that every rank of the host maps; that of another channel is further on in the region.
//
// Two kinds of numbers are counted, both from 1 and both the same on all ranks because all make the same calls:
//   collectives (Stamp::sequence):  shown (in the slot) -> finished
//   staged chunks:                  filled -> reduced -> taken
// Each counter has one writer, its owner; the others only read. A counter is published with a store that is ordered after
// everything it announces, and before the check for sleepers (waiter.hpp).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "exchange/transport.hpp"

namespace ddp::shm {

inline constexpr int64_t kSlots = 64;          // collectives that may be announced before the slowest rank has finished them
inline constexpr int64_t kInlineBytes = 4096;  // payload inside the announcement
inline constexpr int64_t kHeaderWords = 64;    // used-bits that fit into an announcement: 4,096 pieces in a bucket
inline constexpr int64_t kStageDepth = 2;      // chunks under way in staged mode
inline constexpr int64_t kStageBytes = 256 << 10;  // bytes of one staged chunk: in cache, and long enough to hide a barrier
inline constexpr int64_t kNotInReach = -1;

/// One collective as a rank announces it.
struct alignas(64) Slot {
  collective::Stamp stamp;
  int64_t offset = kNotInReach;  // of its tensor in its region
  std::atomic<uint64_t> shown{
      0};  // which collective this is: written last, in the stamp's line, so that one transfer brings both
  collective::Participation participation;  // BucketHeader::participation
  int32_t incomplete = 0;                   // BucketHeader::incomplete
  alignas(64) uint64_t used[kHeaderWords];
  alignas(64) std::byte payload[kInlineBytes];
};

struct alignas(4096) Page {
  static constexpr uint64_t kMagic = 0x3168'735f'7064'6464;

  std::atomic<uint64_t> magic{0};      // written last when the page is ready
  std::atomic<uint32_t> dead{0};       // set by a rank that finds the owner of `monitor` dead
  std::atomic<uint32_t> broken{0};     // the owner has given up a collective; only ranks that wait for a rail read it
  std::atomic<uint32_t> left{0};       // the owner has left the group in good order
  std::atomic<uint32_t> withdrawn{0};  // the group has broken, and the owner has made memory of the program private
  pthread_mutex_t monitor;             // robust, process-shared; held by a thread of the owner as long as it lives

  // Lines of their own: a store to a counter that no rank waits for takes no line from a polling rank.
  alignas(64) std::atomic<uint64_t> announced{0};  // the last one shown; no rank waits for it, it is for error texts
  std::atomic<int32_t> late_rank{-1};              // of the group: for which the owner waited longest in its last crossing,
  std::atomic<int64_t> late_ns{0};                 // and how long; of a rank with a rail
  alignas(64) std::atomic<uint64_t> finished{0};
  alignas(64) std::atomic<uint64_t> filled{0};
  std::atomic<uint64_t> reduced{0};
  std::atomic<uint64_t> taken{0};

  alignas(64) std::atomic<int64_t> outbox{0};  // where the owner's table of rings lies (mailboxes.hpp); 0: it has none
  std::atomic<uint32_t> opened{0};             // rings that the others have made for the owner

  alignas(64) std::atomic<uint32_t> bell{0};  // futex word: changes when something happened for a sleeping owner
  std::atomic<uint32_t> sleeping{0};          // threads of the owner that are asleep, or about to be, in any channel

  Slot slots[kSlots];
  alignas(4096) std::byte stage[kStageDepth][kStageBytes];   // this rank's input
  alignas(4096) std::byte result[kStageDepth][kStageBytes];  // the part that this rank has reduced

  [[nodiscard]] Slot& slot(uint64_t sequence) noexcept { return slots[sequence % static_cast<uint64_t>(kSlots)]; }
};
static_assert(offsetof(Slot, participation) == 64, "what every collective reads of a slot is one line");
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

enum class Counter : size_t { kFinished, kFilled, kReduced, kTaken };

}  // namespace ddp::shm
