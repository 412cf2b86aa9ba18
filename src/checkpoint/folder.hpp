// SPDX-License-Identifier: Apache-2.0
// A folder with one checkpoint for each saved step: which files belong to it, and which of them may be removed.
// The file of step 1200 is `step-000000001200.safetensors`: twelve digits, more where the number needs more. Files with any
// other name are never touched. Threads: any; a folder is changed by one process at a time (folder_lock.hpp). Tested by
// unit/checkpoint/folder_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::checkpoint {

struct SavedStep {
  int64_t step = 0;
  std::string name;
};

[[nodiscard]] std::string name_of_step(int64_t step);
/// Nothing for a name that name_of_step() does not give.
[[nodiscard]] std::optional<int64_t> step_of_name(std::string_view name);

/// `name` in the folder.
[[nodiscard]] std::string path_in(const std::string& folder, const std::string& name);

/// The greatest step first. Throws IO if there is no such folder or it cannot be read.
[[nodiscard]] std::vector<SavedStep> list_steps(const std::string& folder);

/// Step `step` has been saved. Removes the older files except the newest `keep` - 1 (0: removes none), and the temporary
/// files of killed saves. Never fails: a file that cannot be removed is logged.
void prune(const std::string& folder, int64_t step, int64_t keep);

}  // namespace ddp::checkpoint
