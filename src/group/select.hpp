// SPDX-License-Identifier: Apache-2.0
// Which transport a group uses: by the ranks' hosts and by the caller's option; the same choice on all ranks.
// Tested by process/.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/opening.hpp"
#include "exchange/transport.hpp"

namespace ddp::gpu {
class OwnGpu;
}  // namespace ddp::gpu

namespace ddp::group {

/// Ranks of which a transport is chosen.
struct Choice {
  bool threads = false;              // of one process
  std::vector<int32_t> newcomers{};  // they join ranks that were a group before
};

/// Collective. Throws NOT_SUPPORTED with the reason when the asked-for backend cannot be had. Where AUTO would share memory
/// and a rank cannot, all use Gloo; if that is a newcomer, its reason is thrown in place of this. `own`: this rank's GPU,
/// for tensors there; with `reproducible` between hosts they are NOT_SUPPORTED, and links must be as require_gpu_links.
[[nodiscard]] std::unique_ptr<collective::Transport> choose_transport(const collective::TransportContext& context,
                                                                      const Choice& choice, std::shared_ptr<gpu::OwnGpu> own,
                                                                      os::Deadline deadline);

/// What decides how ranks talk to each other must be the same on all: backend, sum_order, reproducible, nccl_max_ctas,
/// links and whether a communicator is lent, else MISMATCH. Collective.
void agree_on_options(bootstrap::Control& control, const ddp_group_options& options, const char* function,
                      os::Deadline deadline);
/// A rank's contribution to the first gather of a group.
[[nodiscard]] bootstrap::Opening opening_of(const ddp_group_options& options);

}  // namespace ddp::group
