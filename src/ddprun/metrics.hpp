// SPDX-License-Identifier: Apache-2.0
// The text of --metrics: what a job has done up to now, for programs that collect numbers. The format is OpenMetrics 1.0,
// which Prometheus and its node exporter read. Pure.
#pragma once

#include <string>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// Of a run whose last sample is the newest. `over`: its exit code is known.
[[nodiscard]] std::string write_metrics(const Run& run, bool over);

}  // namespace ddp::ddprun
