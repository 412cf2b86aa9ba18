// SPDX-License-Identifier: Apache-2.0
// The files of --report, --metrics and --trace.
#pragma once

#include <string>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// FILE.html and, for the numbers, FILE.json.
[[nodiscard]] std::string json_path(const std::string& page_path);
/// Why the file, which this option names, cannot be written; "": it can. An existing file stays.
[[nodiscard]] std::string refuse_file(const std::string& option, const std::string& path);
/// The same for both files of --report.
[[nodiscard]] std::string refuse_report(const std::string& page_path);
/// Replaces the file at once by one with this text. What went wrong; "": nothing.
[[nodiscard]] std::string write_whole(const std::string& path, const std::string& text);
/// Write both, each replacing an older file at once. Returns the message to print: where they are, or what went wrong.
[[nodiscard]] std::string save_report(const Run& run, const std::string& page_path);

}  // namespace ddp::ddprun
