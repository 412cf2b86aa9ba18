// SPDX-License-Identifier: Apache-2.0
// The machines of a job that has several: the number of ranks of each, and how ddprun is started there. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/options.hpp"

namespace ddp::ddprun {

/// "a:4,user@b:2,[fd00::1]:8". A host without a number has `ranks` of them; 0: that is an error. Throws ExitError with a
/// sentence.
[[nodiscard]] std::vector<Host> parse_hosts(const std::string& text, int32_t ranks);

/// The text of a host file: a host in each line, as above or as "a slots=4"; a # begins a comment. `name`: for errors.
[[nodiscard]] std::vector<Host> parse_hostfile(const std::string& text, const std::string& name, int32_t ranks);

/// "4,4,2": ranks of each machine.
[[nodiscard]] std::vector<int32_t> parse_placement(const std::string& text);

/// The name by which others reach it: without "user@" and brackets.
[[nodiscard]] std::string address_of(const Host& host);

/// Text as one word of a POSIX shell.
[[nodiscard]] std::string shell_word(const std::string& text);

/// What starts ddprun on machine `node` of options.machines, in `folder`: a program and its arguments. `ddprun`: its path
/// there.
[[nodiscard]] std::vector<std::string> remote_command(const Options& options, int32_t node, const std::string& folder,
                                                      const std::string& ddprun);

}  // namespace ddp::ddprun
