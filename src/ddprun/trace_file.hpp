// SPDX-License-Identifier: Apache-2.0
// The trace of a job: what its ranks have left in a folder becomes a file (trace/merge.hpp).
#pragma once

#include <string>

namespace ddp::ddprun {

/// The file can be written: it is there from now on. Throws ExitError.
void prepare_trace(const std::string& path);
/// What is said of it: where it is, or why there is none.
[[nodiscard]] std::string write_trace(const std::string& path, const std::string& folder);

}  // namespace ddp::ddprun
