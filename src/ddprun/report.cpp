// The report starts with what the user needs: which rank failed first, how, and what it said last.
// Tested by process/ddprun_failure_test.sh.
#include "ddprun/report.hpp"

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

#include "ddprun/options.hpp"

namespace ddp::ddprun {
namespace {

// Peers on the same host learn of a lost rank within milliseconds, and a core dump may delay the news of its own end.
constexpr double kSimultaneousSeconds = 0.2;

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

std::string rank_list(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

bool failed(const Outcome& outcome) noexcept { return outcome.status != 0; }

int exit_code(const Outcome& outcome) noexcept {
  return WIFSIGNALED(outcome.status) ? kExitSignalBase + WTERMSIG(outcome.status) : WEXITSTATUS(outcome.status);
}

std::string describe(const Outcome& outcome) {
  if (!WIFSIGNALED(outcome.status)) return "exit code " + std::to_string(WEXITSTATUS(outcome.status));
  const int signal = WTERMSIG(outcome.status);
  return "killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ", " + signal_name(signal) + ")";
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

std::vector<std::string> failure_report(const Outcome& first, const std::vector<Outcome>& outcomes,
                                        const std::deque<std::string>& last_lines, int64_t oom_kills) {
  std::vector<std::string> lines;
  const std::string who = "rank " + std::to_string(first.rank);
  lines.push_back(who + (outcomes.size() > 1 ? " failed first: " : " failed: ") + describe(first) + " after " +
                  format_seconds(first.seconds) + ", peak memory " + format_memory(first.peak_kib));
  const std::string hint = memory_hint(first, oom_kills);
  if (!hint.empty()) lines.push_back(hint);
  lines.push_back(last_lines.empty() ? who + " printed nothing" : "the last lines of " + who + ":");
  for (const auto& line : last_lines) lines.push_back("  | " + printable(line));

  std::map<std::string, std::vector<int32_t>> others;
  for (const auto& outcome : outcomes) {
    if (outcome.rank == first.rank) continue;
    const char* ours = outcome.ended_by_us && failed(outcome) ? " by ddprun" : "";
    others[describe(outcome) + ours].push_back(outcome.rank);
  }
  for (const auto& [what, ranks] : others) lines.push_back("then " + rank_list(ranks) + ": " + what);
  return lines;
}

std::vector<std::string> rank_report(const std::vector<Outcome>& outcomes) {
  std::vector<std::string> lines;
  for (const auto& outcome : outcomes) {
    lines.push_back("rank " + std::to_string(outcome.rank) + ": " + describe(outcome) + " after " +
                    format_seconds(outcome.seconds) + ", peak memory " + format_memory(outcome.peak_kib));
  }
  return lines;
}

}  // namespace ddp::ddprun
