// SPDX-License-Identifier: Apache-2.0
// The text of ddprun --help before and after the options.
#pragma once

namespace ddp::ddprun {

extern const char* const kDescription;
extern const char* const kFooter;

}  // namespace ddp::ddprun
