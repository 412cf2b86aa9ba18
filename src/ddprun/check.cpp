// SPDX-License-Identifier: Apache-2.0
#include "ddprun/check.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "ddprun/fd.hpp"
#include "ddprun/findings.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/measure.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kTextBytes = 8192;  // of one rank's findings
constexpr int64_t kNameBytes = 64;
constexpr const char* kVerdict = "ddprun-check-verdict ";
constexpr double kClockS = 1;

int32_t number_in(const char* name, int32_t otherwise) {
  const char* const text = getenv(name);
  return text != nullptr && *text != '\0' ? std::atoi(text) : otherwise;
}

std::string text_in(const char* name) {
  const char* const text = getenv(name);
  return text != nullptr ? text : "";
}

/// By rank: what each gave, cut to `bytes`.
std::vector<std::string> gather(const Library& library, ddp_group* group, const std::string& mine, int64_t bytes) {
  const int64_t size = library.group_get_size(group);
  std::vector<char> own(static_cast<size_t>(bytes)), all(static_cast<size_t>(bytes * size));
  memcpy(own.data(), mine.data(), std::min(mine.size(), own.size() - 1));
  ddp_tensor input, output;
  const int64_t count = bytes * size;
  require(library, library.tensor_init(&input, own.data(), DDP_U8, 1, &bytes));
  require(library, library.tensor_init(&output, all.data(), DDP_U8, 1, &count));
  require(library, library.group_all_gather(group, &input, &output, nullptr));
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < size; ++rank) texts.emplace_back(all.data() + rank * bytes);
  return texts;
}

struct HostReport {
  std::string name;
  int32_t first_rank = 0;
  std::vector<Finding> findings;
};

struct Examination {
  std::vector<HostReport> hosts;
  Figures figures;
  int32_t ranks = 1;
  [[nodiscard]] bool has_problem() const {
    for (const HostReport& host : hosts)
      for (const Finding& finding : host.findings)
        if (finding.level == Level::kProblem) return true;
    return false;
  }
};

std::string text_of(double value, const char* format) {
  char text[64];
  snprintf(text, sizeof text, format, value);
  return text;
}

std::string percent(double part, double whole) { return whole > 0 ? text_of(100 * part / whole, "%.0f %%") : "?"; }

void print_text(const Examination& report) {
  static constexpr const char* kWords[] = {"  ok      ", "  advice  ", "  PROBLEM "};
  for (const HostReport& host : report.hosts) {
    printf("host %s, from rank %d\n", host.name.c_str(), host.first_rank);
    for (const Finding& finding : host.findings)
      printf("%s%s\n", kWords[static_cast<int>(finding.level)], finding.text.c_str());
  }
  const Figures& figures = report.figures;
  printf("measured\n");
  for (const PairFigures& pair : figures.pairs)
    printf("  ranks %d and %d: a sum of one number %.1f us, %.2f GB/s\n", pair.first, pair.second, pair.sum_us,
           pair.bytes_per_s * 1e-9);
  if (figures.all_reduce_s > 0) {
    printf("  barrier of %d ranks: %.1f us\n", report.ranks, figures.barrier_us);
    printf("  all-reduce of %.0f MiB in %d ranks: %.2f ms", static_cast<double>(figures.bytes) / (1 << 20), report.ranks,
           1e3 * figures.all_reduce_s);
    if (report.hosts.size() == 1)
      printf("; to copy as many bytes these cores need %.2f ms, so it runs at %s of that", 1e3 * figures.copy_s,
             percent(figures.copy_s, figures.all_reduce_s).c_str());
    printf("\n");
  }
  printf("  AdamW of %.1f million parameters a rank: %.2f ms, %s of the speed of a plain copy\n",
         static_cast<double>(figures.parameters) * 1e-6, 1e3 * figures.adam_s,
         percent(figures.adam_copy_s, figures.adam_s).c_str());
  printf(report.has_problem() ? "There are problems; each line above says what to do.\n" : "Nothing stands in the way.\n");
}

void print_json(const Examination& report) {
  static constexpr const char* kWords[] = {"ok", "advice", "problem"};
  nlohmann::json all;
  all["ranks"] = report.ranks;
  all["hosts"] = nlohmann::json::array();
  for (const HostReport& host : report.hosts) {
    nlohmann::json findings = nlohmann::json::array();
    for (const Finding& finding : host.findings)
      findings.push_back({{"level", kWords[static_cast<int>(finding.level)]}, {"text", finding.text}});
    all["hosts"].push_back({{"name", host.name}, {"first_rank", host.first_rank}, {"findings", findings}});
  }
  const Figures& figures = report.figures;
  all["pairs"] = nlohmann::json::array();
  for (const PairFigures& pair : figures.pairs)
    all["pairs"].push_back(
        {{"ranks", {pair.first, pair.second}}, {"sum_us", pair.sum_us}, {"bytes_per_s", pair.bytes_per_s}});
  if (figures.all_reduce_s > 0) {
    all["barrier_us"] = figures.barrier_us;
    all["all_reduce"] = {{"bytes", figures.bytes}, {"seconds", figures.all_reduce_s}, {"copy_seconds", figures.copy_s}};
  }
  all["adamw"] = {{"parameters", figures.parameters}, {"seconds", figures.adam_s}, {"copy_seconds", figures.adam_copy_s}};
  all["ok"] = !report.has_problem();
  printf("%s\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

/// Rank 0 alone has a whole one.
Examination examine(const Library& library, ddp_group* group) {
  const int32_t rank = library.group_get_rank(group);
  const int32_t here = number_in("LOCAL_WORLD_SIZE", 1), world = library.group_get_size(group);
  std::string findings;
  if (number_in("LOCAL_RANK", 0) == 0) {
    Machine machine = read_machine(here, here < world ? text_in("MASTER_ADDR") : "");
    machine.library = library.build_info();
    findings = write_findings(judge(machine));
  }
  char name[kNameBytes] = "?";
  gethostname(name, sizeof name - 1);
  const std::vector<std::string> names = gather(library, group, name, kNameBytes);
  const std::vector<std::string> all = gather(library, group, findings, kTextBytes);
  Examination report;
  report.ranks = world;
  const std::vector<ClockFigures> clocks = compare_clocks(library, group);
  for (int32_t each = 0; each < world; ++each) {
    const auto index = static_cast<size_t>(each);
    if (all[index].empty()) continue;
    HostReport host{names[index], each, read_findings(all[index])};
    if (here < world && each > 0) {
      const double off = std::abs(clocks[index].offset_s);
      const std::string text = "its clock is " + text_of(off * 1e3, "%.1f ms") + " from that of rank 0 (to " +
                               text_of(clocks[index].error_s * 1e3, "%.1f ms") + ")";
      const bool far = off - clocks[index].error_s > kClockS;
      host.findings.push_back(
          {far ? Level::kAdvice : Level::kFine, far ? text + ": times in logs mislead; run an NTP client" : text});
    }
    report.hosts.push_back(std::move(host));
  }
  report.figures = measure(library, group, [rank](const char* what) {
    if (rank == 0) fprintf(stderr, "ddprun: measuring: %s\n", what);
  });
  return report;
}

}  // namespace

int check_as_rank(bool json) {
  const std::optional<Error> problem = try_to([json] {
    const Library library = open_library();
    ddp_group* group = nullptr;
    require(library, library.group_create(nullptr, nullptr, &group));
    const Examination report = examine(library, group);
    if (library.group_get_rank(group) == 0) {
      json ? print_json(report) : print_text(report);
      printf("%s%d\n", kVerdict, report.has_problem() ? 1 : 0);
      fflush(stdout);
    }
    library.group_destroy(group);
  });
  if (problem) fprintf(stderr, "ddprun: %s\n", problem->text().c_str());
  return problem ? 1 : 0;
}

int run_check(const std::vector<std::string>& words, bool json) {
  char self[4096] = "";
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0)
    throw make_error(DDP_ERROR_IO, "/proc/self/exe cannot be read");
  std::vector<std::string> texts{self, "--show", "0", "--no-prefix", "--no-pty"};
  texts.insert(texts.end(), words.begin(), words.end());
  texts.emplace_back(self);
  texts.emplace_back(json ? kCheckRankJson : kCheckRank);
  std::vector<char*> arguments;
  arguments.reserve(texts.size() + 1);
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw make_error(DDP_ERROR_IO, "pipe: %s", strerror(errno));
  const Fd out(ends[0]);
  Fd in(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), 1);
  pid_t child = -1;
  const int failed = posix_spawn(&child, self, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw make_error(DDP_ERROR_IO, "%s cannot be started: %s", self, strerror(failed));
  in = Fd();
  int verdict = -1;
  FILE* const lines = fdopen(dup(out.get()), "r");
  for (char line[4096]; lines != nullptr && fgets(line, sizeof line, lines) != nullptr;)
    strncmp(line, kVerdict, strlen(kVerdict)) == 0 ? verdict = std::atoi(line + strlen(kVerdict)) : fputs(line, stdout);
  if (lines != nullptr) fclose(lines);
  fflush(stdout);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kExitSignalBase + WTERMSIG(status);
  if (code != 0) return code;
  return verdict < 0 ? kExitInternal : verdict;
}

}  // namespace ddp::ddprun
