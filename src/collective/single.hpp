// Seam 2 for a world of one rank: every collective is done before it began, so programs need no `if`.
// Tested by capi/ and conformance/.
#pragma once

#include <memory>

#include "collective/transport.hpp"

namespace ddp::collective {

[[nodiscard]] std::unique_ptr<Transport> make_single_transport();

}  // namespace ddp::collective
