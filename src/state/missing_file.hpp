// Why a checkpoint that was to be loaded is not there: a mistyped name, a mistyped folder, or another working folder.
// Tested by unit/state/missing_file_test.cpp.
#pragma once

#include <string>

#include "base/error.hpp"

namespace ddp::state {

/// IO: names the file, and what there is instead. Reads the folder; `path` need not exist in any part.
[[nodiscard]] Error missing_file(const std::string& path);

}  // namespace ddp::state
