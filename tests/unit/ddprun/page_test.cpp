// SPDX-License-Identifier: Apache-2.0
// The page and the JSON of a report, from invented runs. With --write FOLDER they are written there, for
// page_reader_test.py and for readers.
#include "ddprun/page.hpp"

#include "ddprun/charts.hpp"
#include "ddprun/figures.hpp"
#include "ddprun/numbers.hpp"
#include "ddprun/run_json.hpp"
#include "support/check.hpp"
#include "unit/ddprun/made_up_run.hpp"

using namespace ddp::ddprun;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

ddp_case(numbers_are_short) {
  expect_equal(format_number(0), std::string("0"), "zero");
  expect_equal(format_number(0.0451), std::string("0.045"), "small");
  expect_equal(format_number(9.999), std::string("10"), "rounded up");
  expect_equal(format_number(48.25), std::string("48.2"), "two digits");
  expect_equal(format_number(1234567.4), std::string("1,234,567"), "large");
  expect_equal(format_share(0.944), std::string("94 %"), "share");
  expect_equal(format_share(0.0123), std::string("1.2 %"), "small share");
  expect_equal(format_time(59.5), std::string("59.5 s"), "seconds");
  expect_equal(format_time(65), std::string("1:05 min"), "minutes");
  expect_equal(format_time(7383), std::string("2:03:03 h"), "hours");
  expect_equal(format_ms(0.0451), std::string("45.1 µs"), "microseconds");
  expect_equal(format_ms(12.34), std::string("12.3 ms"), "milliseconds");
  expect_equal(format_bytes(26214400), std::string("25 MiB"), "bytes");
}

ddp_case(axes_end_beyond_the_values) {
  for (const double most : {1e-7, 0.3, 1.0, 7.0, 48.9, 99.0, 101.0, 1.2e9}) {
    const std::vector<double> marks = axis_marks(most, 4);
    expect(marks.size() >= 2 && marks.size() <= 6 && marks.back() >= most * (1 - 1e-9) && marks.front() == 0, "marks");
  }
  for (const double most : {0.05, 3.0, 61.0, 5000.0, 1e6, 1e8}) {
    const std::vector<double> marks = time_marks(most, 6);
    expect(!marks.empty() && marks.size() <= 8 && marks.back() <= most, "times");
  }
}

ddp_case(a_gap_breaks_a_line) {
  TimeChart chart;
  chart.id = "gap";
  chart.title = "Gap";
  chart.seconds = {0, 1, 2, 3, 4};
  chart.length_s = 4;
  chart.series = {{"a", 0, {1, 1, -1, 2, 2}}};
  chart.format = format_number;
  const Json json = time_chart(chart);
  const Json& line = json["series"][0];
  expect(line["top"] == Json({0.5, 0.5, nullptr, 1.0, 1.0}) && line["texts"] == Json({"1", "1", "–", "2", "2"}),
         line.dump());
  expect(json["at"] == Json({0.0, 0.25, 0.5, 0.75, 1.0}) && json["area"] == true && !line.contains("bottom"), json.dump());
  expect(json["y_marks"].front() == Json({0.0, "0"}) && json["y_marks"].back() == Json({1.0, "2"}), json["y_marks"].dump());
}

ddp_case(areas_stand_on_each_other) {
  TimeChart chart;
  chart.seconds = {1, 2};
  chart.length_s = 2;
  chart.stacked = true;
  chart.series = {{"a", 1, {1, 2}}, {"b", 0, {3, -1}}};
  chart.events = {1};
  chart.format = format_number;
  const Json json = time_chart(chart);
  expect(json["series"][0]["top"] == Json({0.25, 0.5}) && json["series"][1]["bottom"] == Json({0.25, 0.5}), json.dump());
  expect(json["series"][1]["top"] == Json({1.0, nullptr}) && json["series"][1]["texts"] == Json({"3", "–"}), json.dump());
  expect(json["events"] == Json::array({0.5}), json.dump());
}

ddp_case(any_sign_has_an_axis) {
  for (const auto& [least, most] :
       {std::pair(-3.0, 5.0), std::pair(-0.2, -0.1), std::pair(0.0, 7.0), std::pair(-1e9, 1.0)}) {
    const std::vector<double> marks = axis_marks_between(least, most, 4);
    const double small = 1e-9 * (most - least);
    expect(marks.size() >= 2 && marks.size() <= 8 && marks.front() <= least + small && marks.back() >= most - small,
           std::to_string(least));
  }
  TimeChart chart;
  chart.seconds = {0, 1, 2, 3};
  chart.length_s = 3;
  chart.any_sign = true;
  chart.series = {{"loss", 0, {-1, 1, NAN, 0}}};
  chart.format = format_value;
  const Json json = time_chart(chart);
  expect(json["series"][0]["top"] == Json({0.0, 1.0, nullptr, 0.5}) && json["area"] == false, json.dump());
  expect(json["series"][0]["texts"] == Json({"-1", "1", "–", "0"}), json.dump());
}

/// A part of the page's contents.
Json shown(const Run& run, const char* part) { return page_json(run, "x.json")[part]; }

Json chart_of(const Run& run, const std::string& id) {
  for (Json& chart : shown(run, "charts"))
    if (chart["id"] == id) return chart;
  return nullptr;
}

/// A column of the table of ranks; null: no such column.
Json column_of(const Run& run, const std::string& head) {
  const Json table = shown(run, "ranks");
  const auto at = std::find(table["heads"].begin(), table["heads"].end(), Json(head));
  if (at == table["heads"].end()) return nullptr;
  Json cells = Json::array();
  for (const Json& row : table["rows"]) cells.push_back(row[static_cast<size_t>(at - table["heads"].begin())]);
  return cells;
}

/// The object in a page.
Json numbers_in(const std::string& page) {
  const std::string begin = "id=\"run\">";
  const size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

ddp_case(a_page_says_what_happened) {
  const Run run = made_up_run(4, 120, 0);
  const std::string page = write_page(run, "report.json");
  const Json json = numbers_in(page);
  const Json& findings = json["figures"]["findings"];
  expect(has(findings.dump(), "Rank 2 is the straggler: each other rank waited 8.4 s for it, 7.0 % of the run."),
         "straggler");
  expect(json["page"]["state"] == "✓ succeeded" && has(findings.dump(), "started again once"), "the end");
  expect(column_of(run, "host") == Json({"node-a", "node-a", "node-b", "node-b"}), "hosts");
  expect(!has(page, "<b>\"it") && !has(page, "<b>\\\"it"), "no element in the numbers");
  expect(has(json["page"]["command"].get<std::string>(), "'--name=<b>\"it'\\''s\" & more</b>' '\xef\xbf\xbd'"),
         "the command");
  expect(json["events"].size() == 2 && json["page"]["events"][0][0] == "40 s", "the story");
  const Json failure = numbers_in(write_page(made_up_run(4, 120, 137), "report.json"));
  expect(has(failure["figures"]["findings"].dump(), "The job failed with exit code 137. Rank 2 ended first"), "failure");
  expect(failure["page"]["state"] == "✗ exit code 137", "state");
}

ddp_case(the_page_has_the_numbers_of_the_file) {
  const Run run = made_up_run(4, 120, 137);
  Json file = Json::parse(write_json(run)), page = numbers_in(write_page(run, "x.json"));
  expect_equal(file["samples"].size(), run.samples.size(), "samples in the file");
  file.erase("samples");
  page.erase("page");
  expect_equal(page.dump(), file.dump(), "all else");
}

std::string text_of(const RunFigures& figures) {
  std::string text;
  for (const RunFinding& finding : figures.findings)
    text += std::string(finding.kind == RunFinding::Kind::kGood  ? "+"
                        : finding.kind == RunFinding::Kind::kBad ? "-"
                                                                 : "=") +
            finding.text + "\n";
  return text;
}

/// Two ranks here over shared memory, 100 s long, which have waited 1 ms for each other.
Run run_here(int exit_code) {
  Run run = made_up_run(2, 100, exit_code);
  run.restarts = run.least_ranks = 0;
  for (RankRun& rank : run.ranks) {
    rank.host = "";
    rank.cores = 8;
    rank.transports = ddp::trace::kSharedMemory;
    rank.waited_ns = rank.awaited_ns = 1'000'000;
    rank.counts.sent_bytes = 0;
  }
  return run;
}

ddp_case(a_run_without_passes_has_a_page) {
  Run run;
  run.ranks.resize(2);
  expect_equal(figures_of(run).no_pass, std::string("No rank made a group of libddp."), "a program without libddp");
  run.ranks[1].transports = 0;
  expect_equal(figures_of(run).no_pass,
               std::string("The program made a group of libddp, and ended before the end of its first pass."), "a crash");
  expect(shown(run, "charts").empty() && has(write_page(run, "x.json"), "</html>"), "page");
  expect(!write_page(Run(), "x.json").empty() && !write_json(Run()).empty(), "nothing at all");
}

ddp_case(a_job_too_short_for_a_rate_has_passes) {
  Run run = run_here(0);
  run.samples.erase(run.samples.begin(), run.samples.end() - 1);
  expect(figures_of(run).per_second < 0 && figures_of(run).no_pass.empty(), "one sample");
  expect(column_of(run, "passes")[0] != "0", "passes");
}

ddp_case(a_bar_is_as_long_as_its_number) {
  Run run = run_here(0);
  Json bars = chart_of(run, "waiting")["bars"];
  expect(bars[0]["shares"] == Json({0.001, 0.001}) && bars[0]["value"] == "0.001 s", "a bar of 1 ms is no full one");
  run.seconds = 0.01;
  for (RankRun& rank : run.ranks) rank.waited_ns = rank.awaited_ns = 100'000;  // 1 % of the run
  bars = chart_of(run, "waiting")["bars"];
  expect(bars[0]["shares"] == Json({0.0, 0.0}) && bars[0]["value"] == "0 s", "0 s have no bar");
  bars = chart_of(made_up_run(4, 120, 0), "waiting")["bars"];
  expect(bars[2]["out"] == true && bars[2]["shares"][0] == 1.0 && bars[0]["out"] == false, bars.dump());
}

ddp_case(what_succeeded_says_how_that_was_judged) {
  Run run = run_here(0);
  expect(has(text_of(figures_of(run)), "+The job succeeded: all 2 ranks ended with exit code 0.\n"), "all had to");
  run.ranks[1].failed = true;
  run.least_ranks = 1;
  expect(has(text_of(figures_of(run)),
             "=The job succeeded: 1 of 2 ranks ended with exit code 0. At least 1 had to (--min-ranks).\n"),
         "one was enough");
  run.ranks.resize(1);
  run.ranks[0].failed = false;
  run.least_ranks = 0;
  expect(has(text_of(figures_of(run)), "+The job succeeded: the rank ended with exit code 0.\n"), "one rank");
}

ddp_case(a_job_that_failed_has_no_tick) {
  const Run run = run_here(1);
  const std::string text = text_of(figures_of(run));
  expect(has(text, "-The job failed with exit code 1.") && has(text, "=No rank stands out") && !has(text, "+"), text);
  expect(!has(write_json(run), "\"kind\": \"good\""), "the findings in the JSON");
  expect(has(write_json(run_here(0)), "\"kind\": \"good\""), "one that succeeded has one");
}

ddp_case(where_a_job_ran_is_named) {
  const auto fact = [](const Run& run, size_t i) {
    const Json facts = shown(run, "facts");
    return facts[i][0].get<std::string>() + ": " + facts[i][1].get<std::string>();
  };
  expect_equal(fact(run_here(0), 0), std::string("Host: my-machine, 8 cores"), "this machine");
  expect_equal(fact(run_here(0), 1), std::string("Transport: shared memory"), "its transport");
  expect_equal(fact(run_here(0), 2), std::string("Launcher: ddprun 9.9"), "version");
  expect(column_of(run_here(0), "host") == Json({"my-machine", "my-machine"}), "in the table");
  expect(column_of(run_here(0), "sent") == Json({"shared memory", "shared memory"}), "nothing is sent in shared memory");
  const Run there = made_up_run(4, 30, 0);
  expect_equal(fact(there, 0), std::string("Hosts: node-a, 16 cores (ranks 0 to 1); node-b (ranks 2 to 3)"),
               "other machines");
  expect_equal(fact(there, 1), std::string("Transport: shared memory and Gloo"), "their transports");
  const Json json = Json::parse(write_json(run_here(0)));
  expect(json["machine"] == Json({{"name", "my-machine"}, {"cores", 8}}) && json["transport"] == "shared memory",
         json.dump());
  expect_equal(name_transports(ddp::trace::kNccl | ddp::trace::kSharedMemory), std::string("shared memory and NCCL"),
               "GPUs");
  expect_equal(name_transports(-1) + name_transports(0), std::string(), "not known");
}

ddp_case(columns_in_which_nothing_happened_are_left_out) {
  Run run = run_here(0);
  for (const char* head : {"void passes", "saves", "recoveries"}) expect(column_of(run, head).is_null(), head);
  run.ranks[1].counts.saves = 3;
  expect(column_of(run, "saves") == Json({"0", "3"}), "saves");
  run.ranks[0].transports = run.ranks[1].transports = -1;
  expect(column_of(run, "sent").is_null(), "nothing was sent");
}

ddp_case(numbers_of_the_program_have_charts) {
  Run run = made_up_run(2, 30, 0);
  run.names = {"loss", "never finite"};
  for (Sample& sample : run.samples) sample.program = {-sample.seconds / 10, NAN};
  run.ranks[1].program = {{"loss", -3, 31}, {"never finite", NAN, 1}};
  const Json chart = chart_of(run, "program-0");
  expect(chart["title"] == "loss" && chart["say"] == "Logged by the program, the mean over the ranks. The last: -3.",
         chart.dump());
  expect(chart_of(run, "program-1").is_null(), "without a finite number there is no chart");
  const Json json = Json::parse(write_json(run));
  expect(json["ranks"][1]["program"] == Json::parse(R"({"loss": {"last": -3.0, "times": 31},
                                                       "never finite": {"last": null, "times": 1}})"),
         json["ranks"][1].dump());
  expect(json["samples"][10]["program"] == Json::parse(R"({"loss": -1.0, "never finite": null})"),
         json["samples"][10].dump());
}

ddp_case(many_ranks_fit) {
  const std::string page = write_page(made_up_run(512, 30, 0), "x.json");
  expect(has(page, "largest rank") && page.size() < 1'000'000, "a page of bearable size");
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// With all columns, and a cause that is long.
Run wide_run() {
  Run run = made_up_run(12, 5000, 137);
  run.ranks[2].end = "killed by signal 11 (Segmentation fault, SIGSEGV)";
  for (RankRun& rank : run.ranks) {
    rank.host = "a-node-with-a-long-name-" + std::to_string(rank.rank / 6);
    rank.counts.voids = rank.counts.recoveries = rank.counts.saves = 1'000 + rank.rank;
  }
  return run;
}

int write_all(const std::string& folder) {
  const struct {
    const char* name;
    Run run;
  } runs[] = {{"good", made_up_run(4, 120, 0)}, {"failed", wide_run()}, {"empty", Run()}};
  for (const auto& [name, run] : runs) {
    write_file(folder + "/" + name + ".html", write_page(run, std::string(name) + ".json"));
    write_file(folder + "/" + name + ".json", write_json(run));
  }
  return 0;
}

ddp_before_cases(if (argc == 3 && argv[1] == std::string("--write")) std::exit(write_all(argv[2])));
