// SPDX-License-Identifier: Apache-2.0
// Which process started the ranks of this host. It tells two runs apart where the launcher gives a run no name.
// Tested by process/mpirun_wrapped_test.sh.
#pragma once

#include <string>

namespace ddp::bootstrap {

/// Equal for all ranks that one launcher started on this host, and for no others: number and start time of the nearest
/// ancestor that is a known launcher, or else of the parent.
[[nodiscard]] std::string launcher_process();

}  // namespace ddp::bootstrap
