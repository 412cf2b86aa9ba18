// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/page_test.cpp and process/ddprun_report_test.sh.
#include "ddprun/page.hpp"

#include <algorithm>
#include <ctime>

#include "ddprun/charts.hpp"
#include "ddprun/figures.hpp"
#include "ddprun/numbers.hpp"

namespace ddp::ddprun {
namespace {

constexpr size_t kMostLines = 8;                   // of memory, before they become the largest and the smallest
constexpr double kNotableShare = 0.01;             // of the time: waiting up to that has no full bar
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

std::vector<std::string> hosts_of(const Run& run) {
  std::vector<std::string> hosts;
  for (const RankRun& rank : run.ranks)
    if (hosts.empty() || hosts.back() != rank.host) hosts.push_back(rank.host);
  return hosts;
}

std::string header_of(const Run& run) {
  const bool good = run.exit_code == 0;
  const std::vector<std::string> hosts = hosts_of(run);
  std::string where = hosts.size() > 1 ? " on " + plural(hosts.size(), "host") : "";
  if (hosts.size() == 1 && !hosts.front().empty()) where = " on " + hosts.front();
  if (hosts.size() == 1 && hosts.front().empty() && !run.machine.empty()) where = " on " + run.machine;
  return "<header><p class=brand>libddp · report of a job</p><h1>" + escape_html(program_of(run)) + "</h1><p class=lead>" +
         "<span class='state " + (good ? "good'>✓ succeeded" : "bad'>✗ exit code " + std::to_string(run.exit_code)) +
         "</span> " +
         escape_html(
             plural(run.ranks.size(), "rank") +
             (static_cast<size_t>(run.world_size) > run.ranks.size() ? " of " + std::to_string(run.world_size) : "") +
             where + " · " + format_time(run.seconds) + " · " + moment_text(run.started_unix_s)) +
         "</p><pre class=command tabindex=0 aria-label='Command'>" + escape_html(command_line(run.command)) +
         "</pre></header>";
}

std::string tile(const std::string& value, const std::string& name, const std::string& note) {
  return "<div class=tile><dt>" + escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd><dd class=note>" +
         escape_html(note) + "</dd></div>";
}

std::string tiles_of(const Run& run, const RunFigures& figures) {
  std::string html = "<dl class=tiles>";
  if (figures.per_second >= 0)
    html += tile(format_number(figures.per_second), figures.unit + " a second",
                 format_number(static_cast<double>(figures.total)) + " in all");
  if (figures.share_hidden >= 0) {
    html += tile(format_share(figures.share_hidden), "hidden", "of the communication");
    html += tile(format_ms(figures.exposed_ms), "exposed", "communication in each pass");
  }
  if (figures.sent_bytes > 0) html += tile(format_bytes(figures.sent_bytes), "sent by a rank", "in each pass");
  if (figures.peak_kib > 0)
    html += tile(format_kib(figures.peak_kib), "peak memory", "of rank " + std::to_string(figures.largest));
  html += tile(std::to_string(run.restarts), run.restarts == 1 ? "restart" : "restarts", plural(run.events.size(), "event"));
  return html + "</dl>";
}

std::string findings_of(const RunFigures& figures) {
  if (figures.findings.empty()) return "";
  std::string html = "<section class=card id=findings><h2>What stands out</h2><ul class=findings>";
  for (const RunFinding& finding : figures.findings) {
    const bool good = finding.kind == RunFinding::Kind::kGood, bad = finding.kind == RunFinding::Kind::kBad;
    html += std::string("<li class=") +
            (good  ? "good"
             : bad ? "bad"
                   : "note") +
            "><b aria-hidden=true>" +
            (good  ? "✓"
             : bad ? "!"
                   : "i") +
            "</b><span>" + escape_html(finding.text) + "</span></li>";
  }
  return html + "</ul></section>";
}

TimeChart over_time(const Run& run, const RunFigures& figures) {
  TimeChart chart;
  for (const Interval& interval : figures.intervals) chart.seconds.push_back((interval.from_s + interval.to_s) / 2);
  chart.length_s = run.seconds;
  for (const RunEvent& event : run.events) chart.events.push_back(event.seconds);
  chart.events_are = "Dashed: failures and restarts, told below";
  return chart;
}

std::string throughput_of(const Run& run, const RunFigures& figures) {
  if (figures.per_second < 0) return "";
  TimeChart chart = over_time(run, figures);
  chart.id = "throughput";
  chart.title = "Throughput";
  chart.say = format_number(figures.per_second) + " " + figures.unit + " a second: the median while it trained.";
  chart.series = {{figures.unit + " a second", 0, {}}};
  chart.format = format_number;
  for (const Interval& interval : figures.intervals) chart.series[0].values.push_back(interval.per_second);
  return time_chart(chart);
}

std::string communication_of(const Run& run, const RunFigures& figures) {
  if (figures.share_hidden < 0) return "";
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
  return time_chart(chart);
}

std::string memory_of(const Run& run, const RunFigures& figures) {
  if (figures.peak_kib == 0 || figures.intervals.empty()) return "";
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
  return time_chart(chart);
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

std::string waiting_of(const Run& run, const RunFigures& figures) {
  const bool known =
      std::any_of(run.ranks.begin(), run.ranks.end(), [](const RankRun& rank) { return rank.awaited_ns > 0; });
  if (!known || run.ranks.size() < 2) return "";
  BarChart chart;
  chart.id = "waiting";
  chart.title = "Waiting by rank";
  chart.say = figures.straggler >= 0 ? "The others wait for rank " + std::to_string(figures.straggler) +
                                           ": who is waited for is slow, who waits is fast."
                                     : "Who is waited for is slow, who waits is fast. No rank stands out.";
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
  return bar_chart(chart);
}

std::string buckets_of(const Run& run) {
  const auto found = std::find_if(run.ranks.begin(), run.ranks.end(), [](const RankRun& r) { return r.buckets.count > 0; });
  if (found == run.ranks.end()) return "";
  const Buckets& buckets = found->buckets;
  BarChart chart;
  chart.id = "buckets";
  chart.title = "Buckets";
  chart.say = format_bytes(static_cast<double>(buckets.gradient_bytes)) + " of gradients travel in " +
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
  return bar_chart(chart);
}

std::string events_of(const Run& run) {
  if (run.events.empty() && run.last_words.empty()) return "";
  std::string html = "<section class=card id=story><h2>Failures and restarts</h2>";
  if (!run.events.empty()) html += "<ol class=story>";
  for (const RunEvent& event : run.events)
    html += "<li><time>" + format_time(event.seconds) + "</time><span>" + escape_html(event.text) + "</span></li>";
  if (!run.events.empty()) html += "</ol>";
  if (!run.last_words.empty()) {
    html += "<details open><summary>What ddprun said at the end</summary><pre class=words tabindex=0>";
    for (const std::string& line : run.last_words) html += escape_html(line) + "\n";
    html += "</pre></details>";
  }
  return html + "</section>";
}

std::string machine_name(const Run& run) {
  return run.machine.empty() ? "here" : run.machine.substr(0, run.machine.find(','));
}

/// Ranks that share memory send nothing.
std::string sent_text(const Run& run, const Counts& counts) {
  if (counts.sent_bytes > 0 || counts.comm_ns == 0) return format_bytes(static_cast<double>(counts.sent_bytes));
  return run.world_size > 1 ? "shared memory" : "–";
}

std::string ranks_of(const Run& run) {
  std::vector<std::vector<std::string>> cells{{"rank", "host", "starts", "end", "after", "steps", "passes", "void", "hidden",
                                               "exposed", "sent", "saves", "recoveries", "peak memory"}};
  const auto number = [](int64_t count) { return format_number(static_cast<double>(count)); };
  for (const RankRun& rank : run.ranks) {
    const Counts& counts = rank.counts;
    const double share = share_hidden(counts);
    cells.push_back({std::to_string(rank.rank), rank.host.empty() ? machine_name(run) : rank.host, number(rank.starts),
                     rank.end, format_time(rank.ended_s), number(counts.steps), number(counts.passes), number(counts.voids),
                     share < 0 ? "–" : format_share(share), format_time(static_cast<double>(counts.exposed_ns) * 1e-9),
                     sent_text(run, counts), number(counts.saves), number(counts.recoveries),
                     rank.peak_kib > 0 ? format_kib(rank.peak_kib) : "–"});
  }
  return "<section class=card id=ranks><h2>Ranks</h2>" + data_table(cells, "Ranks", true) + "</section>";
}

}  // namespace

std::string write_page(const Run& run, const std::string& json_name) {
  const RunFigures figures = figures_of(run);
  std::string html =
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width,"
      "initial-scale=1'><meta name=color-scheme content='light dark'><title>" +
      escape_html(program_of(run)) + " – libddp report</title><style>" + page_style() + "</style></head><body><main>" +
      header_of(run) + tiles_of(run, figures) + findings_of(figures);
  if (figures.per_second < 0)
    html +=
        "<section class=card><h2>No pass was completed</h2><p class=say>The program ended before the end of its first pass, "
        "or "
        "it has used no model of libddp.</p></section>";
  html += "<div class=two>" + throughput_of(run, figures) + communication_of(run, figures) + waiting_of(run, figures) +
          buckets_of(run) + memory_of(run, figures) + "</div>" + events_of(run) + ranks_of(run);
  return html + "<footer>Written by ddprun " + escape_html(run.version) + ". The numbers: <a href='" +
         escape_html(json_name) + "'>" + escape_html(json_name) + "</a></footer></main><script>" + page_script() +
         "</script></body></html>\n";
}

}  // namespace ddp::ddprun
