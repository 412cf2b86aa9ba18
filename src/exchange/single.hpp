// SPDX-License-Identifier: Apache-2.0
// Seam 2 for a world of one rank: every collective is done before it began, so programs need no `if`.
// Tested by capi/ and conformance/.
#pragma once

#include <memory>

#include "exchange/transport.hpp"

namespace ddp::collective {

/// `arena`: NULL for one of its own.
[[nodiscard]] std::unique_ptr<Transport> make_single_transport(std::shared_ptr<Arena> arena = nullptr);

}  // namespace ddp::collective
