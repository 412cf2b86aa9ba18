// SPDX-License-Identifier: Apache-2.0
// Why a checkpoint that was to be loaded is not there: a mistyped name, a mistyped folder, or another working folder.
// Tested by unit/checkpoint/missing_file_test.cpp.
#pragma once

#include <string>

#include "core/error.hpp"

namespace ddp::checkpoint {

/// IO: names the file, and what there is instead. Reads the folder; `path` need not exist in any part.
[[nodiscard]] Error missing_file(const std::string& path);

}  // namespace ddp::checkpoint
