// SPDX-License-Identifier: Apache-2.0
// A block of GPU threads on the host: each is a fiber with a stack of its own, and gives way at a barrier or where its warp
// exchanges numbers. Blocks run one after the other; threads of odd blocks run in descending order, so that no kernel can
// depend on which thread comes first. A barrier that not all threads reach, or an exchange without the whole warp, ends the
// test program with a message. One launch at a time. Tested by unit/cuda/host_threads_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::test::host_cuda {

struct Index {
  unsigned x;
};

/// Of the thread that runs.
[[nodiscard]] Index here() noexcept;
[[nodiscard]] Index block() noexcept;
[[nodiscard]] Index grid() noexcept;

void wait_for_block();
/// Every lane gives a number and gets that of the lane `distance` further on, or its own at the end.
[[nodiscard]] uint64_t from_lane_below(uint64_t mine, unsigned distance);

/// body(what) for every thread of every block.
void run(unsigned blocks, unsigned threads, void (*body)(void*), void* what);

}  // namespace ddp::test::host_cuda
