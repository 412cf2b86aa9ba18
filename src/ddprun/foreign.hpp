// SPDX-License-Identifier: Apache-2.0
// How words on the command line are answered that are not ddprun's: options of other launchers, and typing errors.
#pragma once

#include <string>
#include <vector>

#include "ddprun/options.hpp"

namespace CLI {
class App;
}

namespace ddp::ddprun {

/// Wrong usage: throws ExitError with this sentence.
[[noreturn]] void refuse(const std::string& text);

/// Before CLI11 sees the words: it would read -np4 as -n p4. -np becomes -n; other options of other launchers, and unknown
/// options, are refused with what to write.
void check_names(const CLI::App& app, std::vector<const char*>& words);

/// The same for CLI11's message about a mistake.
[[noreturn]] void refuse_words(const std::string& text);

/// Throws ExitError if an option is meant by the program: "ddprun check", where there is no such program.
void check_program(const CLI::App& app, const Options& options);

}  // namespace ddp::ddprun
