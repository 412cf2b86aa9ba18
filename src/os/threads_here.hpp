// SPDX-License-Identifier: Apache-2.0
// Which threads of the library run in this process.
// Any thread.
// Tested by capi/debug_log_test.cpp.
#pragma once

#include <string>

namespace ddp::os {

/// "ddp-client, ddp-server": their names; "" if there are none, or /proc cannot be read.
[[nodiscard]] std::string threads_here();

}  // namespace ddp::os
