// SPDX-License-Identifier: Apache-2.0
// Families of metrics are one table: a name, its type, its unit, what it is, and how a rank has it.
// Tested by unit/ddprun/metrics_test.cpp and process/ddprun_metrics_test.sh.
#include "ddprun/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ddprun/json.hpp"

namespace ddp::ddprun {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[40];
  snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// In quotation marks. Of JSON's escapes only those of quotation marks and backslashes are left, which OpenMetrics has too.
std::string label_value(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct Family {
  const char* name;
  const char* unit;  // the name ends with it; "": none
  const char* help;
  double (*value)(const RankRun&);
};

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }
double whole(int64_t count) { return static_cast<double>(count); }

constexpr Family kCounters[] = {
    {"ddp_starts", "", "Starts of the rank's process.", [](const RankRun& r) { return whole(r.starts); }},
    {"ddp_steps", "", "Optimizer steps.", [](const RankRun& r) { return whole(r.counts.steps); }},
    {"ddp_passes", "", "Backward passes that succeeded.", [](const RankRun& r) { return whole(r.counts.passes); }},
    {"ddp_void_passes", "", "Backward passes that were void.", [](const RankRun& r) { return whole(r.counts.voids); }},
    {"ddp_recoveries", "", "Recoveries of the group.", [](const RankRun& r) { return whole(r.counts.recoveries); }},
    {"ddp_saves", "", "Checkpoints saved.", [](const RankRun& r) { return whole(r.counts.saves); }},
    {"ddp_backward_seconds", "seconds", "Time in backward passes.",
     [](const RankRun& r) { return seconds(r.counts.backward_ns); }},
    {"ddp_communication_seconds", "seconds", "Time in which gradients were reduced.",
     [](const RankRun& r) { return seconds(r.counts.comm_ns); }},
    {"ddp_exposed_communication_seconds", "seconds", "The part of it for which the program waited.",
     [](const RankRun& r) { return seconds(r.counts.exposed_ns); }},
    {"ddp_step_seconds", "seconds", "Time in optimizer steps.", [](const RankRun& r) { return seconds(r.counts.step_ns); }},
    {"ddp_save_seconds", "seconds", "Time in which checkpoints were saved.",
     [](const RankRun& r) { return seconds(r.counts.save_ns); }},
    {"ddp_waited_seconds", "seconds", "Time for which the rank waited for other ranks.",
     [](const RankRun& r) { return seconds(r.waited_ns); }},
    {"ddp_awaited_seconds", "seconds", "Time for which other ranks waited for the rank, summed over them.",
     [](const RankRun& r) { return seconds(r.awaited_ns); }},
    {"ddp_sent_bytes", "bytes", "Bytes of gradients that the rank sent.",
     [](const RankRun& r) { return whole(r.counts.sent_bytes); }},
};

constexpr Family kGauges[] = {
    {"ddp_up", "", "1: the rank's process runs.", [](const RankRun& r) { return r.runs() ? 1.0 : 0.0; }},
    {"ddp_peak_memory_bytes", "bytes", "Largest resident memory that was seen.",
     [](const RankRun& r) { return 1024 * whole(r.peak_kib); }},
    {"ddp_gradient_bytes", "bytes", "Gradients of the model whose pass ended last.",
     [](const RankRun& r) { return whole(r.buckets.gradient_bytes); }},
    {"ddp_buckets", "", "Buckets of that model.", [](const RankRun& r) { return whole(r.buckets.count); }},
};

class Text {
 public:
  explicit Text(const Run& run) : run_(run) {}

  void begin(const std::string& name, const char* type, const char* unit, const char* help) {
    text_ += "# TYPE " + name + " " + type + "\n";
    if (*unit != '\0') text_ += "# UNIT " + name + " " + unit + "\n";
    text_ += "# HELP " + name + " " + help + "\n";
  }
  void of_job(const std::string& name, const char* unit, const char* help, double value) {
    begin(name, "gauge", unit, help);
    text_ += name + " " + number_text(value) + "\n";
  }
  void of_ranks(const Family& family, bool counts) {
    begin(family.name, counts ? "counter" : "gauge", family.unit, family.help);
    for (const RankRun& rank : run_.ranks)
      add(family.name + std::string(counts ? "_total" : ""), rank, "", family.value(rank));
  }
  void add(const std::string& name, const RankRun& rank, const std::string& more, double value) {
    const std::string& host = rank.host.empty() ? run_.machine.name : rank.host;
    text_ += name + "{rank=\"" + std::to_string(rank.rank) + "\",host=" + label_value(host) +
             ",group=" + label_value(rank.group) + more + "} " + number_text(value) + "\n";
  }
  /// Of the program: `value` of each number.
  void of_program(const std::string& name, double (*value)(const ProgramValue&)) {
    for (const RankRun& rank : run_.ranks)
      for (const ProgramValue& each : rank.program) add(name, rank, ",name=" + label_value(each.name), value(each));
  }
  void info(const std::string& labels) { text_ += "ddp_job_info{" + labels + "} 1\n"; }
  [[nodiscard]] std::string end() const { return text_ + "# EOF\n"; }

 private:
  const Run& run_;
  std::string text_;
};

}  // namespace

std::string write_metrics(const Run& run, bool over) {
  Text text(run);
  text.begin("ddp_job", "info", "", "The job.");
  text.info("version=" + label_value(run.version) +
            ",program=" + label_value(run.command.empty() ? "" : run.command.front()));
  text.of_job("ddp_job_start_time_seconds", "seconds", "When the job was started, since 1970.", whole(run.started_unix_s));
  text.of_job("ddp_job_run_seconds", "seconds", "How long the job has run.", run.seconds);
  text.of_job("ddp_job_ranks", "", "Ranks of the job.", run.world_size);
  const auto running = std::count_if(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return rank.runs(); });
  text.of_job("ddp_job_running_ranks", "", "Ranks whose process runs.", whole(running));
  if (over) text.of_job("ddp_job_exit_code", "", "The exit code of the job, which is over.", run.exit_code);
  for (const Family& family : kCounters) text.of_ranks(family, true);
  for (const Family& family : kGauges) text.of_ranks(family, false);
  if (!run.samples.empty() && run.samples.back().resident_kib.size() == run.ranks.size()) {
    text.begin("ddp_resident_memory_bytes", "gauge", "bytes", "Resident memory of the rank's process; 0: it does not run.");
    for (size_t i = 0; i < run.ranks.size(); ++i)
      text.add("ddp_resident_memory_bytes", run.ranks[i], "", 1024 * whole(run.samples.back().resident_kib[i]));
  }
  text.begin("ddp_program_value", "gauge", "", "The last value of a number that the program logs.");
  text.of_program("ddp_program_value", [](const ProgramValue& each) { return each.value; });
  text.begin("ddp_program_values", "counter", "", "How often the program has logged it.");
  text.of_program("ddp_program_values_total", [](const ProgramValue& each) { return whole(each.times); });
  return text.end();
}

}  // namespace ddp::ddprun
