// SPDX-License-Identifier: Apache-2.0
// Who made which steps of a training, so that it can be made again: rank 0 appends one line of JSON to the file that
// DDP_MEMBERSHIP_LOG names, when a group is created, after each recovery and after each load. include/RECOVERY.md has the
// format. Promises: a line is in the file, in full and for good, when the call returns on rank 0; a file that cannot be
// written is a warning and no failure, because a recovery is worth more. Threads: as create and recover. Tested by
// unit/group/membership_log_test.cpp and capi/membership_log_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "control/control.hpp"
#include "ddp/group.h"

namespace ddp::group {

/// The contents of a line other than the ranks.
struct Formation {
  static constexpr std::string_view kCreated = "created", kRecovered = "recovered", kWentBack = "went back",
                                    kLoaded = "loaded";
  std::string_view event = kCreated;
  int64_t generation = 1;
  int64_t step = 0;  // made by the generations before; -1: not known, because no optimizer counts them
};

/// One line with its end.
[[nodiscard]] std::string membership_line(const bootstrap::Control& control, const ddp_group_options& options,
                                          const Formation& formation, std::string_view time);

/// On rank 0, if the variable is set. A rank that joined later counts generations from its own first one: then the number
/// continues from the file's last line.
void log_membership(const bootstrap::Control& control, const ddp_group_options& options, Formation formation);

}  // namespace ddp::group
