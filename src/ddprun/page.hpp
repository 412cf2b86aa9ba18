// SPDX-License-Identifier: Apache-2.0
// The report of a job as one page that needs nothing else, no network either: report.html with the numbers in it.
#pragma once

#include <string>

#include "ddprun/charts.hpp"
#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// report.html, embedded when ddprun is built.
extern const char* const kReportPage;

/// What the page shows, as texts, places and tables; its script looks up the rest in report_json(). `json_name`: the file
/// with all samples, beside the page. A pure function.
[[nodiscard]] Json page_json(const Run& run, const std::string& json_name);
/// The page. A pure function.
[[nodiscard]] std::string write_page(const Run& run, const std::string& json_name);

}  // namespace ddp::ddprun
