// SPDX-License-Identifier: Apache-2.0
// Whether what the ranks of a group send each other is encrypted (ddp_links), and what follows from that.
// Any thread. Tested by unit/group/links_test.cpp and process/sealed_links_test.cpp.
#pragma once

#include "control/control.hpp"
#include "ddp/group.h"

namespace ddp::group {

/// Fill the option from the environment's DDP_LINKS (NULL: not set) where it is left open. Throws INVALID_ARGUMENT.
void resolve_links(ddp_group_options& options, const char* environment);

/// Throws NOT_SUPPORTED, on all ranks, if encrypted links are asked for without a token.
void require_links(const bootstrap::Control& control, const ddp_group_options& options);

/// The same for the connections of NCCL between hosts, which are plain. Where nothing was asked for, the log has it.
void require_gpu_links(const bootstrap::Control& control, const ddp_group_options& options);

/// "encrypted" or "plain", between processes that share no memory.
[[nodiscard]] const char* links_between(const bootstrap::Control& control, const ddp_group_options& options);

}  // namespace ddp::group
