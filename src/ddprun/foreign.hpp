// SPDX-License-Identifier: Apache-2.0
// Names of options that other launchers have.
#pragma once

#include <string>
#include <string_view>

namespace ddp::ddprun {

/// What to write instead of this option, for example "-n N"; "" if no launcher that we know has it. `word` as typed: with or
/// without =VALUE or a number at its end.
[[nodiscard]] std::string our_option(std::string_view word);

}  // namespace ddp::ddprun
