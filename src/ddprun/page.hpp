// SPDX-License-Identifier: Apache-2.0
// The report of a job as one page that needs nothing else, no network either: a pure function.
#pragma once

#include <string>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// `json_name`: the file with the numbers, in the folder of the page.
[[nodiscard]] std::string write_page(const Run& run, const std::string& json_name);

/// Colours, fonts and layout; what reads a chart under the pointer and by the arrow keys.
[[nodiscard]] const char* page_style() noexcept;
[[nodiscard]] const char* page_script() noexcept;

}  // namespace ddp::ddprun
