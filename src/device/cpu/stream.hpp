// SPDX-License-Identifier: Apache-2.0
// Copying to memory that another core, or no core, will read soon: past the own caches.
//
// Why: a line that one core has just written is in its cache, marked as changed. When the two cores share a last-level
// cache, another core gets it quickly. When they do not (two core complexes of one processor, two sockets), every such line
// costs a round trip between complexes, and the next write to it another one to take it back: measured 3 GB/s, against 20
// and more through memory. Which cores a rank runs on changes from launch to launch, on virtual machines also during one.
// Stores that bypass the cache leave the line in memory, which is equally near to all cores.
// Measured, 25 MiB staged, 2 ranks: 4.3 ms with a common cache and 14 ms without; with streaming stores 3.3 and 2.4 ms.
// Costs more than a plain copy only when the reader shares a cache and the whole array fits in it.
// Threads: any.
// Tested by unit/device/stream_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::cpu {

/// memcpy whose stores bypass the caches where the machine can (x86-64); plain elsewhere. The bytes are visible to others
/// only after stream_fence() and then a store that they look for.
void stream_copy(std::byte* to, const std::byte* from, int64_t bytes) noexcept;

/// Orders what stream_copy has written before every later store.
void stream_fence() noexcept;

}  // namespace ddp::cpu
