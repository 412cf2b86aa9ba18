// SPDX-License-Identifier: Apache-2.0
// The report starts with the most important facts: which rank failed first, how, and its last lines.
// Tested by process/ddprun_failure_test.sh.
#include "ddprun/report.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

namespace ddp::ddprun {
namespace {

// Peers on the same host learn of a lost rank within milliseconds, and a core dump may delay the news of its own end.
constexpr double kSimultaneousSeconds = 0.2;
constexpr int kExitSsh = 255;

std::string format_memory(int64_t kib) {
  char text[32];
  if (kib >= 1 << 20) {
    snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(kib) / (1 << 20));
  } else {
    snprintf(text, sizeof text, "%.0f MiB", static_cast<double>(kib) / 1024);
  }
  return text;
}

std::string format_seconds(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

bool by_signal(const Outcome& outcome) noexcept { return exit_code(outcome) > kExitSignalBase; }

// The report is for a terminal: what could change its state is shown as a dot.
std::string printable(const std::string& line) {
  std::string text;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte >= 0x20 && byte != 0x7f ? c : (c == '\t' ? ' ' : '.');
  }
  return text;
}

std::string memory_hint(const Outcome& first, int64_t oom_kills) {
  if (exit_code(first) != kExitSignalBase + SIGKILL) return "";
  if (oom_kills > 0) {
    return "the kernel's out-of-memory killer struck meanwhile: use fewer ranks or smaller batches, or give the job more "
           "memory";
  }
  return oom_kills == 0 ? "the kernel's out-of-memory killer did not strike: somebody sent SIGKILL"
                        : "SIGKILL often means that memory ran out (dmesg tells), or somebody sent it";
}

}  // namespace

std::string short_seconds(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

std::string Names::one(int32_t local) const {
  return list({local}) + (places.empty() ? "" : " (host " + places[static_cast<size_t>(local)] + ")");
}

std::string Names::list(const std::vector<int32_t>& local) const {
  std::string text = std::string(hosts.empty() ? "rank" : "host") + (local.size() == 1 ? " " : "s ");
  for (size_t i = 0; i < local.size(); ++i)
    text += (i > 0 ? ", " : "") + (hosts.empty() ? std::to_string(first + local[i]) : hosts[static_cast<size_t>(local[i])]);
  return text;
}

Names names_of(const Options& options) {
  Names names{options.machines.first_rank()};
  for (const Host& host : options.machines.hosts) names.hosts.push_back(host.name);
  return names;
}

Names rank_names_of(const Options& options) {
  Names names;
  for (const Host& host : options.machines.hosts)
    names.places.insert(names.places.end(), static_cast<size_t>(host.ranks), host.name);
  return names;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

bool failed(const Outcome& outcome) noexcept { return outcome.status != 0; }

int32_t count_succeeded(const std::vector<Outcome>& outcomes) noexcept {
  return static_cast<int32_t>(
      std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) { return !failed(outcome); }));
}

int exit_code(const Outcome& outcome) noexcept {
  return WIFSIGNALED(outcome.status) ? kExitSignalBase + WTERMSIG(outcome.status) : WEXITSTATUS(outcome.status);
}

std::string describe(const Outcome& outcome) {
  if (!outcome.lost.empty()) {
    const std::string signal = WIFSIGNALED(outcome.status) ? "killed by " + signal_name(WTERMSIG(outcome.status)) : "";
    return "lost with the connection to host " + outcome.lost + ", which ended with " +
           (signal.empty() ? "exit code " + std::to_string(WEXITSTATUS(outcome.status)) : signal);
  }
  if (!WIFSIGNALED(outcome.status)) return "exit code " + std::to_string(WEXITSTATUS(outcome.status));
  const int signal = WTERMSIG(outcome.status);
  return "killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ", " +  // NOLINT(concurrency-mt-unsafe)
         signal_name(signal) + ")";
}

std::optional<Outcome> first_failure(const std::vector<Outcome>& outcomes) {
  const Outcome* earliest = nullptr;
  for (const auto& outcome : outcomes) {
    if (!failed(outcome)) continue;
    const bool better = earliest == nullptr || (earliest->ended_by_us && !outcome.ended_by_us) ||
                        (earliest->ended_by_us == outcome.ended_by_us && outcome.seconds < earliest->seconds);
    if (better) earliest = &outcome;
  }
  if (earliest == nullptr) return std::nullopt;
  const Outcome* chosen = earliest;
  for (const auto& outcome : outcomes) {
    const bool close = failed(outcome) && outcome.ended_by_us == earliest->ended_by_us &&
                       outcome.seconds < earliest->seconds + kSimultaneousSeconds;
    if (close && by_signal(outcome) && !by_signal(*chosen)) chosen = &outcome;
  }
  return *chosen;
}

namespace {

std::string memory_of(const Names& names, const Outcome& outcome) {
  return !names.hosts.empty() || !outcome.lost.empty() ? "" : ", peak memory " + format_memory(outcome.peak_kib);
}

std::vector<std::string> failure_report(const Names& names, const Outcome& first, const std::vector<Outcome>& outcomes,
                                        const std::deque<std::string>& last_lines, int64_t oom_kills) {
  std::vector<std::string> lines;
  const std::string who = names.one(first.rank);
  const bool is_host = !names.hosts.empty();
  lines.push_back(who + (outcomes.size() > 1 ? " failed first: " : " failed: ") + describe(first) + " after " +
                  format_seconds(first.seconds) + memory_of(names, first));
  if ((is_host || !first.lost.empty()) && exit_code(first) == kExitSsh)
    lines.push_back(
        "ssh ends so when it cannot connect, when the connection breaks, or when ddprun is killed there; its own words "
        "stand above");
  const bool is_silent = is_host || !first.lost.empty();
  const std::string hint = is_silent ? "" : memory_hint(first, oom_kills);
  if (!hint.empty()) lines.push_back(hint);
  if (!is_silent) lines.push_back(last_lines.empty() ? who + " printed nothing" : "the last lines of " + who + ":");
  for (const auto& line : last_lines)
    if (!is_silent) lines.push_back("  | " + printable(line));

  std::map<std::string, std::vector<int32_t>> others;
  for (const auto& outcome : outcomes) {
    if (outcome.rank == first.rank) continue;
    const char* ours = outcome.ended_by_us && failed(outcome) ? " by ddprun" : "";
    others[describe(outcome) + ours].push_back(outcome.rank);
  }
  for (const auto& [what, ranks] : others) lines.push_back("then " + names.list(ranks) + ": " + what);
  return lines;
}

std::vector<std::string> rank_report(const Names& names, const std::vector<Outcome>& outcomes) {
  std::vector<std::string> lines;
  lines.reserve(outcomes.size());
  for (const auto& outcome : outcomes) {
    lines.push_back(names.one(outcome.rank) + ": " + describe(outcome) + " after " + format_seconds(outcome.seconds) +
                    memory_of(names, outcome));
  }
  return lines;
}

}  // namespace

LastWords last_words(const Names& names, std::vector<Outcome> outcomes, const JobEnd& end,
                     const std::function<std::deque<std::string>(int32_t)>& last_lines) {
  std::sort(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) { return a.rank < b.rank; });
  const auto first = first_failure(outcomes);
  std::vector<int32_t> succeeded;
  for (const auto& outcome : outcomes)
    if (!failed(outcome)) succeeded.push_back(outcome.rank);
  const bool survived = !succeeded.empty() && static_cast<int32_t>(succeeded.size()) >= end.enough;
  LastWords words;
  words.exit_code = end.timed_out          ? kExitTimeout
                    : end.stop_signal != 0 ? kExitSignalBase + end.stop_signal
                    : first && !survived   ? exit_code(*first)
                                           : 0;
  if (end.stop_signal != 0) {
    const std::string ending =
        first ? names.one(first->rank) + " ended first: " + describe(*first) : "all ranks ended with exit code 0";
    words.lines.push_back("stopped by " + signal_name(end.stop_signal) + "; " + ending);
  } else if (first && !first->ended_by_us) {
    words.lines = failure_report(names, *first, outcomes, last_lines(first->rank), end.oom_kills);
  }
  if (end.restarts > 0) words.lines.push_back("restarts: " + std::to_string(end.restarts));
  if (!end.story.empty()) words.lines.emplace_back("what happened, in seconds from the start:");
  for (const std::string& line : end.story) words.lines.push_back(line);
  if (first && words.exit_code == 0) words.lines.push_back(names.list(succeeded) + " succeeded (" + end.option + ")");
  if (end.each_rank)
    for (auto& line : rank_report(names, outcomes)) words.lines.push_back(std::move(line));
  return words;
}

}  // namespace ddp::ddprun
