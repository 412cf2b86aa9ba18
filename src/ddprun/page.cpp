// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/page_test.cpp and process/ddprun_report_test.sh.
#include "ddprun/page.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <string_view>

#include "ddprun/charts.hpp"
#include "ddprun/figures.hpp"
#include "ddprun/numbers.hpp"
#include "ddprun/run_json.hpp"

namespace ddp::ddprun {
namespace {

constexpr size_t kMostLines = 8;        // of memory, before they become the largest and the smallest
constexpr double kNotableShare = 0.01;  // of the time: waiting up to that has no full bar
constexpr std::string_view kPlace = "@RUN@", kBehind = "</script>";  // of the numbers, in report.html
constexpr const char* kNothing = "–";                                // in a table
constexpr size_t kNamedHosts = 16;
constexpr size_t kMostBars = 64;                   // ranks
constexpr double kMib = 1024, kGib = 1024 * kMib;  // in KiB

std::string plural(size_t count, const std::string& name) {
  return std::to_string(count) + " " + name + (count == 1 ? "" : "s");
}

/// As a shell would take it.
std::string command_line(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                            "_-./:=,+@%") == std::string::npos;
    line += line.empty() ? "" : " ";
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::string moment_text(int64_t unix_s) {
  const auto when = static_cast<time_t>(unix_s);
  tm parts{};
  char text[64];
  if (localtime_r(&when, &parts) == nullptr || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &parts) == 0) return "";
  return text;
}

std::string program_of(const Run& run) {
  if (run.command.empty()) return "a program";
  const std::string& path = run.command.front();
  return path.substr(path.rfind('/') + 1);
}

struct HostRun {
  NamedHost machine{};
  std::vector<int32_t> ranks{};
};

/// Ranks of a host follow each other.
std::vector<HostRun> hosts_of(const Run& run) {
  std::vector<HostRun> hosts;
  for (const RankRun& rank : run.ranks) {
    const std::string& name = rank.host.empty() ? run.machine.name : rank.host;
    if (hosts.empty() || hosts.back().machine.name != name) hosts.push_back({{name, 0}, {}});
    HostRun& host = hosts.back();
    host.machine.cores = rank.cores > 0 ? rank.cores : rank.host.empty() ? run.machine.cores : host.machine.cores;
    host.ranks.push_back(rank.rank);
  }
  return hosts;
}

/// "node-a, 8 cores (ranks 0 to 3)"
std::string host_text(const HostRun& host, bool alone) {
  const NamedHost& machine = host.machine;
  std::string text = machine.name.empty() ? "a host whose name is not known" : machine.name;
  if (machine.cores > 0) text += ", " + plural(static_cast<size_t>(machine.cores), "core");
  if (alone) return text;
  return text + " (rank" + (host.ranks.size() == 1 ? " " : "s ") + std::to_string(host.ranks.front()) +
         (host.ranks.size() == 1 ? "" : " to " + std::to_string(host.ranks.back())) + ")";
}

/// Where the job ran, how its bytes were sent, and by which version.
std::vector<std::pair<std::string, std::string>> facts_of(const Run& run) {
  std::vector<std::pair<std::string, std::string>> facts;
  const std::vector<HostRun> hosts = hosts_of(run);
  std::string where;
  for (size_t i = 0; i < hosts.size() && i < kNamedHosts; ++i)
    where += (where.empty() ? "" : "; ") + host_text(hosts[i], hosts.size() == 1);
  if (hosts.size() > kNamedHosts) where += "; and " + std::to_string(hosts.size() - kNamedHosts) + " more";
  if (!where.empty()) facts.emplace_back(hosts.size() == 1 ? "Host" : "Hosts", where);
  if (const std::string transport = name_transports(transports_of(run)); !transport.empty())
    facts.emplace_back("Transport", transport);
  facts.emplace_back("Launcher", "ddprun " + run.version);
  return facts;
}

Json tiles_of(const Run& run, const RunFigures& figures) {
  Json tiles = Json::array();
  if (figures.per_second >= 0)
    tiles.push_back({format_number(figures.per_second), figures.unit + " a second",
                     format_number(static_cast<double>(figures.total)) + " in all"});
  if (figures.share_hidden >= 0) {
    tiles.push_back({format_share(figures.share_hidden), "hidden", "of the communication"});
    tiles.push_back({format_ms(figures.exposed_ms), "exposed", "communication in each pass"});
  }
  if (figures.sent_bytes > 0) tiles.push_back({format_bytes(figures.sent_bytes), "sent by a rank", "in each pass"});
  if (figures.peak_kib > 0)
    tiles.push_back({format_kib(figures.peak_kib), "peak memory", "of rank " + std::to_string(figures.largest)});
  tiles.push_back(
      {std::to_string(run.restarts), run.restarts == 1 ? "restart" : "restarts", plural(run.events.size(), "event")});
  return tiles;
}

TimeChart over_time(const Run& run, const RunFigures& figures) {
  TimeChart chart;
  for (const Interval& interval : figures.intervals) chart.seconds.push_back((interval.from_s + interval.to_s) / 2);
  chart.length_s = run.seconds;
  for (const RunEvent& event : run.events) chart.events.push_back(event.seconds);
  chart.events_are = "Dashed: failures and restarts, told below";
  return chart;
}

void add_throughput(const Run& run, const RunFigures& figures, Json& charts) {
  if (figures.per_second < 0) return;
  TimeChart chart = over_time(run, figures);
  chart.id = "throughput";
  chart.title = "Throughput";
  chart.say = format_number(figures.per_second) + " " + figures.unit + " a second: the median while it trained.";
  chart.series = {{figures.unit + " a second", 0, {}}};
  chart.format = format_number;
  for (const Interval& interval : figures.intervals) chart.series[0].values.push_back(interval.per_second);
  charts.push_back(time_chart(chart));
}

void add_communication(const Run& run, const RunFigures& figures, Json& charts) {
  if (figures.share_hidden < 0) return;
  TimeChart chart = over_time(run, figures);
  chart.id = "communication";
  chart.title = "Communication in a pass";
  chart.say =
      format_ms(figures.hidden_ms) + " hidden, " + format_ms(figures.exposed_ms) + " exposed: means over ranks and passes.";
  chart.series = {{"exposed", 1, {}}, {"hidden", 0, {}}};
  chart.stacked = true;
  chart.format = format_ms;
  for (const Interval& interval : figures.intervals) {
    chart.series[0].values.push_back(interval.exposed_ms);
    chart.series[1].values.push_back(interval.hidden_ms);
  }
  charts.push_back(time_chart(chart));
}

void add_memory(const Run& run, const RunFigures& figures, Json& charts) {
  if (figures.peak_kib == 0 || figures.intervals.empty()) return;
  TimeChart chart = over_time(run, figures);
  chart.id = "memory";
  chart.title = "Memory";
  chart.say = "Resident, of each rank's process. Rank " + std::to_string(figures.largest) +
              " had most: " + format_kib(figures.peak_kib) + ".";
  const bool large = static_cast<double>(figures.peak_kib) >= kGib;  // so that the marks of the axis are round
  const double unit = large ? kGib : kMib;
  chart.format = [large](double amount) { return format_number(amount) + (large ? " GiB" : " MiB"); };
  const bool few = run.ranks.size() <= kMostLines;
  if (few)
    for (size_t i = 0; i < run.ranks.size(); ++i)
      chart.series.push_back({"rank " + std::to_string(run.ranks[i].rank), static_cast<int>(i), {}});
  else
    chart.series = {{"largest rank", 1, {}}, {"smallest rank", 0, {}}};
  for (const Interval& interval : figures.intervals) {
    double most = -1, least = -1;
    for (size_t i = 0; i < run.ranks.size(); ++i) {
      const double kib = i < interval.resident_kib.size() ? static_cast<double>(interval.resident_kib[i]) / unit : 0;
      if (few) chart.series[i].values.push_back(kib > 0 ? kib : -1);
      most = std::max(most, kib);
      if (kib > 0) least = least < 0 ? kib : std::min(least, kib);
    }
    if (few) continue;
    chart.series[0].values.push_back(most > 0 ? most : -1);
    chart.series[1].values.push_back(least);
  }
  charts.push_back(time_chart(chart));
}

/// The program's own numbers, a chart for each name.
void add_program(const Run& run, const RunFigures& figures, Json& charts) {
  for (size_t i = 0; i < run.names.size(); ++i) {
    TimeChart chart = over_time(run, figures);
    chart.id = "program-" + std::to_string(i);
    chart.title = run.names[i];
    chart.series = {{"mean over the ranks", static_cast<int>(i), {}}};
    chart.any_sign = true;
    chart.format = format_value;
    double last = std::numeric_limits<double>::quiet_NaN();
    for (const Interval& interval : figures.intervals) {
      chart.series[0].values.push_back(i < interval.program.size() ? interval.program[i] : last);
      if (std::isfinite(chart.series[0].values.back())) last = chart.series[0].values.back();
    }
    if (!std::isfinite(last)) continue;
    chart.say = "Logged by the program, the mean over the ranks. The last: " + format_value(last) + ".";
    charts.push_back(time_chart(chart));
  }
}

/// Of many ranks, those for which `worth` is largest.
std::vector<const RankRun*> chosen(const Run& run, int64_t RankRun::*worth) {
  std::vector<const RankRun*> ranks;
  for (const RankRun& rank : run.ranks) ranks.push_back(&rank);
  if (ranks.size() <= kMostBars) return ranks;
  std::sort(ranks.begin(), ranks.end(), [&](const RankRun* a, const RankRun* b) { return a->*worth > b->*worth; });
  ranks.resize(kMostBars);
  return ranks;
}

void add_waiting(const Run& run, const RunFigures& figures, Json& charts) {
  const bool known =
      std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return rank.awaited_ns > 0; });
  if (!known || run.ranks.size() < 2) return;
  BarChart chart;
  chart.id = "waiting";
  chart.title = "Waiting by rank";
  chart.say = (figures.straggler >= 0 ? "The others wait for rank " + std::to_string(figures.straggler) + "."
                                      : std::string("No rank stands out.")) +
              " A rank that others wait for is slow; a rank that waits is fast.";
  chart.rows_are = "rank";
  chart.parts = {"each other rank waited for it", "it waited for others"};
  chart.colours = {1, 0};
  chart.stacked = false;
  chart.scale = kNotableShare * run.seconds;
  chart.format = format_time;
  for (const RankRun* rank : chosen(run, &RankRun::awaited_ns))
    chart.bars.push_back({"rank " + std::to_string(rank->rank),
                          {static_cast<double>(rank->awaited_ns) * 1e-9 / static_cast<double>(run.ranks.size() - 1),
                           static_cast<double>(rank->waited_ns) * 1e-9},
                          rank->rank == figures.straggler});
  charts.push_back(bar_chart(chart));
}

void add_buckets(const Run& run, Json& charts) {
  const auto found = std::find_if(run.ranks.begin(), run.ranks.end(), [](const RankRun& r) { return r.buckets.count > 0; });
  if (found == run.ranks.end()) return;
  const Buckets& buckets = found->buckets;
  BarChart chart;
  chart.id = "buckets";
  chart.title = "Buckets";
  chart.say = format_bytes(static_cast<double>(buckets.gradient_bytes)) + " of gradients are sent in " +
              plural(static_cast<size_t>(buckets.count), "bucket") + ", as the model's last pass had them.";
  chart.rows_are = "bucket";
  chart.parts = {"size"};
  chart.colours = {0};
  chart.format = format_bytes;
  chart.bars = {{"largest", {static_cast<double>(buckets.largest)}}};
  if (buckets.count > 1) {
    chart.bars.push_back({"mean", {static_cast<double>(buckets.gradient_bytes) / static_cast<double>(buckets.count)}});
    chart.bars.push_back({"smallest", {static_cast<double>(buckets.smallest)}});
  }
  charts.push_back(bar_chart(chart));
}

/// Ranks that share memory may send nothing: then how they communicate says more than "0 B".
std::string sent_text(const RankRun& rank) {
  if (rank.counts.sent_bytes > 0) return format_bytes(static_cast<double>(rank.counts.sent_bytes));
  const std::string transport = name_transports(rank.transports);
  return transport.empty() ? kNothing : transport;
}

/// A column of the table of ranks.
struct Column {
  const char* head;
  std::string (*cell)(const RankRun&);
  bool is_rare;  // left out where no rank has anything to tell in it
};

std::string number(int64_t count) { return format_number(static_cast<double>(count)); }

const Column kColumns[] = {
    {"rank", [](const RankRun& rank) { return std::to_string(rank.rank); }, false},
    {"host", [](const RankRun& rank) { return rank.host; }, false},
    {"starts", [](const RankRun& rank) { return number(rank.starts); }, false},
    {"end", [](const RankRun& rank) { return rank.end; }, false},
    {"after", [](const RankRun& rank) { return format_time(rank.ended_s); }, false},
    {"steps", [](const RankRun& rank) { return number(rank.counts.steps); }, true},
    {"passes", [](const RankRun& rank) { return number(rank.counts.passes); }, false},
    {"void passes", [](const RankRun& rank) { return number(rank.counts.voids); }, true},
    {"hidden",
     [](const RankRun& rank) {
       const double share = share_hidden(rank.counts);
       return share < 0 ? kNothing : format_share(share);
     },
     true},
    {"exposed", [](const RankRun& rank) { return format_time(static_cast<double>(rank.counts.exposed_ns) * 1e-9); }, false},
    {"sent", sent_text, true},
    {"saves", [](const RankRun& rank) { return number(rank.counts.saves); }, true},
    {"recoveries", [](const RankRun& rank) { return number(rank.counts.recoveries); }, true},
    {"peak memory", [](const RankRun& rank) { return rank.peak_kib > 0 ? format_kib(rank.peak_kib) : kNothing; }, false}};

/// Without the columns in which no rank has anything, so that the others have room.
Json ranks_of(const Run& run) {
  std::vector<RankRun> ranks = run.ranks;
  for (RankRun& rank : ranks)
    if (rank.host.empty()) rank.host = run.machine.name;
  Json heads = Json::array(), rows = Json::array();
  for (size_t i = 0; i < ranks.size(); ++i) rows.push_back(Json::array());
  for (const Column& column : kColumns) {
    const auto says_nothing = [&](const RankRun& rank) {
      const std::string cell = column.cell(rank);
      return cell == "0" || cell == kNothing;
    };
    if (column.is_rare && std::all_of(ranks.begin(), ranks.end(), says_nothing)) continue;
    heads.push_back(column.head);
    for (size_t i = 0; i < ranks.size(); ++i) rows[i].push_back(column.cell(ranks[i]));
  }
  return {{"heads", std::move(heads)}, {"rows", std::move(rows)}};
}

Json events_of(const Run& run) {
  Json events = Json::array();
  for (const RunEvent& event : run.events) events.push_back({format_time(event.seconds), event.text});
  return events;
}

Json charts_of(const Run& run, const RunFigures& figures) {
  Json charts = Json::array();
  add_throughput(run, figures, charts);
  add_communication(run, figures, charts);
  add_waiting(run, figures, charts);
  add_buckets(run, charts);
  add_memory(run, figures, charts);
  add_program(run, figures, charts);
  return charts;
}

/// "12 ranks of 16 · 2:00 min · 2026-11-27 12:00:00 UTC"
std::string lead_of(const Run& run) {
  return plural(run.ranks.size(), "rank") +
         (static_cast<size_t>(run.world_size) > run.ranks.size() ? " of " + std::to_string(run.world_size) : "") + " · " +
         format_time(run.seconds) + " · " + moment_text(run.started_unix_s);
}

}  // namespace

Json page_json(const Run& run, const std::string& json_name) {
  const RunFigures figures = figures_of(run);
  Json facts = Json::array();
  for (const auto& [name, text] : facts_of(run)) facts.push_back({name, text});
  return {{"title", program_of(run)},
          {"state", run.exit_code == 0 ? std::string("✓ succeeded") : "✗ exit code " + std::to_string(run.exit_code)},
          {"lead", lead_of(run)},
          {"facts", std::move(facts)},
          {"command", command_line(run.command)},
          {"tiles", tiles_of(run, figures)},
          {"charts", charts_of(run, figures)},
          {"events", events_of(run)},
          {"ranks", ranks_of(run)},
          {"written", "Written by ddprun " + run.version + "."},
          {"numbers", json_name}};
}

// A '<' could end the element of the page in which the object stands; JSON has it in strings alone.
std::string write_page(const Run& run, const std::string& json_name) {
  Json json = report_json(run);
  json["page"] = page_json(run, json_name);
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string page(kReportPage);
  const size_t at = page.find(std::string(kPlace) + std::string(kBehind));
  std::string safe;
  for (const char c : text) safe += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return page.replace(at, kPlace.size(), safe);
}

}  // namespace ddp::ddprun
