// SPDX-License-Identifier: Apache-2.0
#include "os/threads_here.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

namespace ddp::os {

std::string threads_here() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name.starts_with("ddp-")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace ddp::os
