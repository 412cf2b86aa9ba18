// SPDX-License-Identifier: Apache-2.0
// ddp_state_keep: which models can be kept now. How they are kept is group/keeper.hpp.
// Threads: the caller's, one at a time for a group. Tested by capi/keep_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state.hpp"
#include "core/error.hpp"

namespace ddp::checkpoint {

inline constexpr int64_t kMostOwnBytes = int64_t{64} << 10;

/// Models of one group; one at least. `refusal`: an argument of this rank that cannot be right; every rank then throws it.
/// Collective.
void keep(const char* function, const std::vector<model::Model*>& models, const Counters& counters, std::string own,
          void* stream, const std::optional<Error>& refusal);

}  // namespace ddp::checkpoint
