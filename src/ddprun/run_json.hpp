// SPDX-License-Identifier: Apache-2.0
// The numbers of a job as JSON, for programs and for the page: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// All but the samples, of which a page would have too many.
[[nodiscard]] nlohmann::ordered_json report_json(const Run& run);
/// All, as a file. Bytes that are not UTF-8, such as in an argument, are replaced.
[[nodiscard]] std::string write_json(const Run& run);

}  // namespace ddp::ddprun
