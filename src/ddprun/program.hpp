// SPDX-License-Identifier: Apache-2.0
// Which program the user's words mean.
#pragma once

#include <string>

namespace ddp::ddprun {

/// The path that the name means, as a shell finds it in `folder` ("": this one). Throws ExitError 126 or 127 with a sentence
/// about what to do.
[[nodiscard]] std::string find_program(const std::string& name, const std::string& folder = "");

/// Does the name, which has no '/', mean a program in PATH?
[[nodiscard]] bool is_in_path(const std::string& name);

}  // namespace ddp::ddprun
