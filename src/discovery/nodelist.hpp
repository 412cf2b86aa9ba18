// SPDX-License-Identifier: Apache-2.0
// Slurm's way to write lists of hosts: "n[01-04,7],login1". Only the first host is needed: rank 0 runs there.
// Tested by unit/discovery/rendezvous_launchers_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace ddp::bootstrap {

/// "" if the list is empty or cannot be read.
[[nodiscard]] std::string first_host(std::string_view nodelist);

}  // namespace ddp::bootstrap
