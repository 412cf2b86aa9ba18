// SPDX-License-Identifier: Apache-2.0
// The life of a job: start the ranks, pass on output and signals, and see that everything ends.
#pragma once

#include "ddprun/options.hpp"

namespace ddp::ddprun {

/// Runs the job and returns ddprun's exit code. Throws Error or ExitError before the ranks run, and ends processes that were
/// started.
[[nodiscard]] int run_job(const Options& options);

}  // namespace ddp::ddprun
