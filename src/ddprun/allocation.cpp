// SPDX-License-Identifier: Apache-2.0
// Slurm: SLURM_JOB_NODELIST has the machines, SLURM_TASKS_PER_NODE how many tasks each was planned to have; it is set by
// --ntasks, --ntasks-per-node and the like, and otherwise counts 1 a machine, or cores. Only a job script (or salloc) has no
// step: in one the processes are ranks already, and SLURM_STEP_ID is set. Some sites make an interactive shell a step of its
// own
// ("interactive", number 4294967290); that one counts as none.
// PBS: PBS_NODEFILE has a line for each process (mpiprocs) on its machine.
// Tested by unit/ddprun/allocation_test.cpp and process/ddprun_hosts_test.sh.
#include "ddprun/allocation.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "ddprun/launch.hpp"

namespace ddp::ddprun {
namespace {

constexpr size_t kMostHosts = 65'536;
constexpr const char* kInteractiveStep = "4294967290";

std::optional<int64_t> to_number(std::string_view text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (text.empty() || text.front() == '-' || failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// "01-03,7": 01, 02, 03, 7. Empty if it cannot be read.
std::vector<std::string> expand_ranges(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const std::string from = part.substr(0, dash), to = dash == std::string::npos ? from : part.substr(dash + 1);
    const auto first = to_number(from), last = to_number(to);
    if (!first || !last || *last < *first || static_cast<size_t>(*last - *first) >= kMostHosts) return {};
    for (int64_t number = *first; number <= *last; ++number) {
      const std::string digits = std::to_string(number);
      all.push_back(std::string(from.size() > digits.size() ? from.size() - digits.size() : 0, '0') + digits);
    }
  }
  return all;
}

/// One entry of a list: "rack[1-2]n[01-02]".
std::vector<std::string> expand_entry(const std::string& text) {
  std::vector<std::string> made{""};
  for (size_t at = 0; at < text.size();) {
    std::vector<std::string> next;
    std::vector<std::string> pieces;
    if (text[at] == '[') {
      const size_t close = text.find(']', at);
      if (close == std::string::npos) return {};
      pieces = expand_ranges(text.substr(at + 1, close - at - 1));
      at = close + 1;
    } else {
      const size_t open = std::min(text.find('[', at), text.size());
      pieces = {text.substr(at, open - at)};
      at = open;
    }
    if (pieces.empty() || made.size() * pieces.size() > kMostHosts) return {};
    for (const std::string& before : made)
      for (const std::string& piece : pieces) next.push_back(before + piece);
    made = std::move(next);
  }
  return made;
}

[[noreturn]] void cannot_read(const std::string& name, const std::string& value) {
  throw ExitError{kExitUsage, "The allocation cannot be read: " + name + " is \"" + value.substr(0, 100) +
                                  "\". Name the machines with --hosts, or write -n 4 for ranks on this machine alone."};
}

std::optional<Allocation> of_slurm(const VariableFn& variable) {
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value != nullptr ? value : "");
  };
  const std::string step = text("SLURM_STEP_ID").empty() ? text("SLURM_STEPID") : text("SLURM_STEP_ID");
  const bool in_step = !step.empty() && step != kInteractiveStep;
  const char* const name = text("SLURM_JOB_NODELIST").empty() ? "SLURM_NODELIST" : "SLURM_JOB_NODELIST";
  const std::string list = text(name);
  if (list.empty() || in_step) return std::nullopt;
  Allocation found{"Slurm", name, {}};
  const std::vector<std::string> hosts = expand_nodelist(list);
  if (hosts.empty()) cannot_read(name, list);
  const std::string tasks = text("SLURM_TASKS_PER_NODE");
  const std::vector<int32_t> counts = expand_counts(tasks);
  if (!tasks.empty() && counts.size() != hosts.size()) cannot_read("SLURM_TASKS_PER_NODE", tasks);
  const bool planned = !text("SLURM_NTASKS").empty() || !text("SLURM_NTASKS_PER_NODE").empty();
  for (size_t i = 0; i < hosts.size(); ++i) found.hosts.push_back({hosts[i], planned && !counts.empty() ? counts[i] : 0});
  return found;
}

std::optional<Allocation> of_pbs(const VariableFn& variable, const FileFn& file) {
  const char* const path = variable("PBS_NODEFILE");
  if (path == nullptr || *path == '\0') return std::nullopt;
  const std::optional<std::string> text = file(path);
  if (!text.has_value()) cannot_read("the file of PBS_NODEFILE", path);
  Allocation found{"PBS", "PBS_NODEFILE", {}};
  std::istringstream words(*text);
  for (std::string name; words >> name;) {
    const auto same =
        std::find_if(found.hosts.begin(), found.hosts.end(), [&](const Host& host) { return host.name == name; });
    if (same == found.hosts.end()) {
      found.hosts.push_back({name, 1});
    } else {
      ++same->ranks;
    }
  }
  if (found.hosts.empty()) cannot_read("the file of PBS_NODEFILE", path);
  return found;
}

}  // namespace

std::vector<std::string> expand_nodelist(const std::string& text) {
  std::vector<std::string> hosts;
  int depth = 0;
  std::string entry;
  for (const char c : text + ",") {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || depth > 0) {
      entry += c;
      continue;
    }
    const std::vector<std::string> more = expand_entry(entry);
    if (entry.empty() || more.empty() || hosts.size() + more.size() > kMostHosts) return {};
    hosts.insert(hosts.end(), more.begin(), more.end());
    entry.clear();
  }
  if (depth != 0) return {};
  return hosts;
}

std::vector<int32_t> expand_counts(const std::string& text) {
  std::vector<int32_t> counts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t times_at = part.find("(x");
    const bool repeats = times_at != std::string::npos;
    if (repeats && part.back() != ')') return {};
    const auto count = to_number(part.substr(0, times_at));
    const auto times =
        repeats ? to_number(part.substr(times_at + 2, part.size() - times_at - 3)) : std::optional<int64_t>(1);
    if (!count || !times || *count < 1 || *count > 4096 || *times < 1 || *times > static_cast<int64_t>(kMostHosts))
      return {};
    counts.insert(counts.end(), static_cast<size_t>(*times), static_cast<int32_t>(*count));
  }
  return counts;
}

std::optional<Allocation> find_allocation(const VariableFn& variable, const FileFn& file) {
  if (variable("OMPI_COMM_WORLD_RANK") != nullptr || variable("PMI_RANK") != nullptr) return std::nullopt;
  std::optional<Allocation> found = of_slurm(variable);
  return found.has_value() ? found : of_pbs(variable, file);
}

}  // namespace ddp::ddprun
