// SPDX-License-Identifier: Apache-2.0
#include "group/consensus.hpp"

namespace ddp::group {

bool is_own(const Error& error) noexcept {
  return !error.is_agreed() && (error.status() == DDP_ERROR_OUT_OF_MEMORY || error.status() == DDP_ERROR_INTERNAL);
}

void agree(Group& group, std::string_view what, const Error* mine) {
  bootstrap::read_outcomes(group.control(), group.gather(what, bootstrap::outcome_bytes(mine)));
}

void break_for(Group& group, Part part, const char* function, const Error& error) {
  switch (part) {
    case Part::kOwn: return group.health().give_up(function, error);
    case Part::kExchange:
      if (error.is_agreed() && !breaks_group(error.status())) return;  // the ranks leave the exchange together
      return group.health().fail(error);
    case Part::kLocal: return;
    case Part::kCall: break;
  }
  if (!is_own(error)) return;
  group.health().give_up(function, error);
  if (error.text().rfind("ddp_", 0) != 0) throw error.retold(error.status(), std::string(function) + ": " + error.text());
}

}  // namespace ddp::group
