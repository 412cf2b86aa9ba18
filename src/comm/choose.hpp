// Which transport a group uses: by the ranks' hosts and by what the caller asked for; the same choice on all ranks.
// Tested by process/.
#pragma once

#include <memory>

#include "comm/transport.hpp"

namespace ddp {

/// Collective. Throws NOT_SUPPORTED with the reason when the asked-for backend cannot be had.
[[nodiscard]] std::unique_ptr<Transport> choose_transport(const TransportContext& context, bool threads, Deadline deadline);

}  // namespace ddp
