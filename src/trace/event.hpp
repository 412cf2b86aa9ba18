// SPDX-License-Identifier: Apache-2.0
// What a trace is made of. Plain values.
#pragma once

#include <cstdint>

namespace ddp::trace {

enum class EventKind : uint8_t {
  kNone,
  kCall,      // a public collective call; number: bootstrap::UserCall
  kPass,      // from begin_backward to its end; number: of the pass
  kMark,      // a moment: a gradient was marked; number: the parameter; peer, bytes: its first bucket, how many follow it
  kWaiting,   // a bucket, from its first mark until it started; number: the bucket
  kReducing,  // a bucket, from its start until it was done; number: the bucket
  kStep,      // of an optimizer
  kSave,
  kWait,    // the program waited; peer: for which rank
  kGather,  // an exchange over the control plane; number: the same on all ranks
  kGpu,     // work on a GPU; number: the bucket
  kVoid     // a moment: a pass was void
};
inline constexpr EventKind kLastEventKind = EventKind::kVoid;

struct Event {
  EventKind kind = EventKind::kNone;
  uint32_t model = 0;  // its number in the process; 0: none. Below 2^24
  uint32_t number = 0;
  int64_t begin_ns = 0;  // CLOCK_MONOTONIC
  int64_t end_ns = 0;
  int64_t bytes = 0;
  int32_t peer = -1;  // -1: none
  uint32_t pass = 0;
};

}  // namespace ddp::trace
