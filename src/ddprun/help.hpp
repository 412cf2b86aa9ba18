// SPDX-License-Identifier: Apache-2.0
// What ddprun --help says before and behind the options.
#pragma once

namespace ddp::ddprun {

extern const char* const kDescription;
extern const char* const kFooter;

}  // namespace ddp::ddprun
