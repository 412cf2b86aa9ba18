// What ranks are about to do on their GPUs, compared over the host transport first: NCCL itself would wait for ever, or add
// what does not belong together.
// Tested by gpu_host/group_test.cpp.
#pragma once

#include <cstring>
#include <vector>

#include "collective/transport.hpp"

namespace ddp::nccl {

/// Collective. Throws MISMATCH on all ranks.
inline void compare_stamps(collective::Transport& transport, const bootstrap::Control& control,
                           const collective::Stamp& mine) {
  const auto size = static_cast<size_t>(control.size());
  if (size == 1) return;
  std::vector<collective::Stamp> all(size);
  collective::Stamp sent = mine;
  transport.all_gather(flat_tensor(&sent, DDP_U8, sizeof sent),
                       flat_tensor(all.data(), DDP_U8, static_cast<int64_t>(size * sizeof sent)));
  for (size_t rank = 1; rank < size; ++rank)
    if (!(all[rank] == all[0])) throw collective::stamp_mismatch(control, 0, all[0], static_cast<int32_t>(rank), all[rank]);
}

}  // namespace ddp::nccl
