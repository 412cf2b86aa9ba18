// SPDX-License-Identifier: Apache-2.0
// Where the shared secret comes from: DDP_TOKEN, or a file that DDP_TOKEN_FILE names and no other user can read.
// Tested by unit/discovery/rendezvous_token_test.cpp.
#pragma once

#include <cstdlib>

#include "control/auth.hpp"
#include "discovery/rendezvous.hpp"

namespace ddp::bootstrap {

inline const char* process_environment(const char* name) { return std::getenv(name); }

/// Nothing if neither variable is set. Throws IO or INVALID_ARGUMENT naming the file and the cure; never shows the token.
[[nodiscard]] auth::Token read_token(EnvironmentFn environment);

/// DDP_INSECURE=1: the user declares that the network is trusted.
[[nodiscard]] bool is_insecure_wanted(EnvironmentFn environment);

}  // namespace ddp::bootstrap
