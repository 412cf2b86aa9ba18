// SPDX-License-Identifier: Apache-2.0
// Typing errors in the variables that libddp reads.
// Any thread, while no other changes the environment.
// Tested by unit/os/environment_test.cpp.
#pragma once

#include <string>
#include <vector>

namespace ddp::os {

/// "DDP_LGO is not read by libddp; did you mean DDP_LOG?" for each variable that looks like one of libddp's, and what is
/// wrong with the level of DDP_LOG. A name that looks like none may be the program's own. `environment`: as environ.
[[nodiscard]] std::vector<std::string> doubtful_variables(const char* const* environment);

/// Logs them as warnings, once in a process.
void check_environment();

}  // namespace ddp::os
