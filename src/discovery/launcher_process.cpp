// SPDX-License-Identifier: Apache-2.0
#include "discovery/launcher_process.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace ddp::bootstrap {
namespace {

constexpr int kGenerations = 64;
// As /proc shows them, cut to 15 letters. Scripts may stand between them and the rank.
constexpr std::array<std::string_view, 8> kLaunchers = {"hydra_pmi_proxy", "pmi_proxy", "orted",         "prted",
                                                        "mpirun",          "mpiexec",   "mpiexec.hydra", "slurmstepd"};

struct Process {
  std::string name;
  pid_t parent = 0;
  std::string start;  // in clock ticks since the boot: a number that is used again differs in it
};

std::optional<Process> look_at(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t open = text.find('('), close = text.rfind(')');  // the name between them may hold anything
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  std::vector<std::string> fields;  // from the third on
  for (std::string field; rest >> field;) fields.push_back(std::move(field));
  constexpr size_t kParent = 4 - 3, kStart = 22 - 3;
  if (fields.size() <= kStart) return std::nullopt;
  return Process{text.substr(open + 1, close - open - 1), static_cast<pid_t>(std::stol(fields[kParent])), fields[kStart]};
}

std::string identity(pid_t pid) {
  const auto process = look_at(pid);
  return std::to_string(pid) + "/" + (process.has_value() ? process->start : "");
}

}  // namespace

std::string launcher_process() {
  pid_t pid = getppid();
  for (int i = 0; i < kGenerations && pid > 1; ++i) {
    const auto process = look_at(pid);
    if (!process.has_value()) break;
    if (std::find(kLaunchers.begin(), kLaunchers.end(), process->name) != kLaunchers.end()) return identity(pid);
    pid = process->parent;
  }
  return identity(getppid());
}

}  // namespace ddp::bootstrap
