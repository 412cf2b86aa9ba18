// SPDX-License-Identifier: Apache-2.0
// What ranks are about to do on their GPUs, compared over the host transport first: NCCL itself would wait for ever, or add
// what does not belong together.
// Tested by gpu_host/group_test.cpp.
#pragma once

#include <cstring>
#include <vector>

#include "exchange/transport.hpp"
#include "nccl/capture_bits.hpp"
#include "nccl/launch_order.hpp"

namespace ddp::nccl {

/// `order_word`: of Engine; `captured`: into a graph. Collective. Throws DIFFERENT_CALLS on all ranks.
inline void compare_stamps(collective::Transport& transport, const bootstrap::Control& control,
                           const collective::Stamp& mine, uint64_t order_word, bool captured) {
  const auto size = static_cast<size_t>(control.size());
  if (size == 1) return;
  struct Sent {
    collective::Stamp stamp;
    uint64_t order_word = 0;
    uint64_t captured = 0;
  };
  std::vector<Sent> all(size);
  Sent sent{mine, order_word, captured ? 1u : 0u};
  transport.all_gather(flat_tensor(&sent, DDP_U8, sizeof sent),
                       flat_tensor(all.data(), DDP_U8, static_cast<int64_t>(size * sizeof sent)));
  uint64_t words = 0;
  std::vector<uint64_t> captures(capture_words(control.size()));
  for (size_t rank = 0; rank < size; ++rank) {
    words |= all[rank].order_word;
    captures[rank / 64] |= all[rank].captured << (rank % 64);
    if (!(all[rank].stamp == all[0].stamp))
      throw collective::stamp_mismatch(control, 0, all[0].stamp, static_cast<int32_t>(rank), all[rank].stamp);
  }
  if (const auto unlike = unlike_ranks(captures.data(), control.size()))
    throw capture_mismatch(control, *unlike, mine.describe());
  if (LaunchOrder::differs(words)) throw order_mismatch(mine.describe().c_str());
}

}  // namespace ddp::nccl
