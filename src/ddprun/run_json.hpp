// SPDX-License-Identifier: Apache-2.0
// The numbers of a report as JSON: a pure function.
#pragma once

#include <string>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// One object; README.md has its fields.
[[nodiscard]] std::string write_json(const Run& run);

}  // namespace ddp::ddprun
