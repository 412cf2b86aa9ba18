// SPDX-License-Identifier: Apache-2.0
// The page and the JSON of a report, from runs that nobody made. With --write FOLDER they are written there, for
// page_reader_test.py and for eyes.
#include "ddprun/page.hpp"

#include <algorithm>
#include <fstream>

#include "ddprun/charts.hpp"
#include "ddprun/figures.hpp"
#include "ddprun/numbers.hpp"
#include "ddprun/run_json.hpp"
#include "support/check.hpp"
#include "support/cmocka.hpp"
#include "unit/ddprun/made_up_run.hpp"

using namespace ddp::ddprun;
using namespace ddp::test;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void numbers_are_short(void**) {
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
  expect_equal(escape_html("<a href=\"'&\x1b\n"), std::string("&lt;a href=&quot;&#39;&amp;. "), "escaped");
  expect_equal(escape_html("\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82"), std::string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82"),
               "UTF-8");
  expect_equal(escape_html("\xc3-\xff\xed\xa0\x80"),
               std::string("\xef\xbf\xbd-\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"), "no UTF-8");
}

void axes_end_beyond_the_values(void**) {
  for (const double most : {1e-7, 0.3, 1.0, 7.0, 48.9, 99.0, 101.0, 1.2e9}) {
    const std::vector<double> marks = axis_marks(most, 4);
    expect(marks.size() >= 2 && marks.size() <= 6 && marks.back() >= most * (1 - 1e-9) && marks.front() == 0, "marks");
  }
  for (const double most : {0.05, 3.0, 61.0, 5000.0, 1e6, 1e8}) {
    const std::vector<double> marks = time_marks(most, 6);
    expect(!marks.empty() && marks.size() <= 8 && marks.back() <= most, "times");
  }
}

void a_gap_breaks_a_line(void**) {
  TimeChart chart;
  chart.id = "gap";
  chart.title = "Gap";
  chart.seconds = {0, 1, 2, 3, 4};
  chart.length_s = 4;
  chart.series = {{"a", 0, {1, 1, -1, 2, 2}}};
  chart.format = format_number;
  const std::string html = time_chart(chart);
  expect(has(html, "M0.0 500.0L250.0 500.0'") && has(html, "M750.0 0.0L1000.0 0.0'"), "two lines");
  expect(has(html, "<td>–</td>"), "a gap in the table");
}

void a_page_says_what_happened(void**) {
  const std::string page = write_page(made_up_run(4, 120, 0), "report.json");
  expect(has(page, "Rank 2 is the straggler: each other rank waited 8.4 s for it, 7.0 % of the run."), "straggler");
  expect(has(page, "succeeded") && has(page, "started again once"), "the end");
  expect(has(page, "node-a") && has(page, "node-b"), "hosts");
  expect(!has(page, "<b>\"it") && has(page, "&lt;b&gt;"), "escaped");
  expect(!has(page, "http:") && !has(page, "https:") && !has(page, "src="), "nothing is loaded");
  const std::string failure = write_page(made_up_run(4, 120, 137), "report.json");
  expect(has(failure, "The job failed with exit code 137. Rank 2 ended first"), "failure");
}

void a_run_without_passes_has_a_page(void**) {
  Run run;
  run.ranks.resize(1);
  const std::string page = write_page(run, "x.json");
  expect(has(page, "No pass was completed") && has(page, "</html>"), "page");
  expect(!write_json(run).empty(), "json");
  expect(!write_page(Run(), "x.json").empty() && !write_json(Run()).empty(), "nothing at all");
}

void what_is_small_or_failed_looks_so(void**) {
  Run run = made_up_run(2, 100, 1);
  run.machine = "my-machine, 8 cores";
  run.world_size = 2;
  for (RankRun& rank : run.ranks) {
    rank.host = "";
    rank.waited_ns = rank.awaited_ns = 1'000'000;  // 1 ms of 100 s
    rank.counts.sent_bytes = 0;
    rank.end = "killed by signal 11 (Segmentation fault, SIGSEGV)";
  }
  const std::string page = write_page(run, "x.json");
  expect(has(page, "style='width:0.1%'") && !has(page, "style='width:100.0%'></i></span><span class=value>1 ms"),
         "a bar of 1 ms is no full one");
  expect(has(page, "No rank stands out") && !has(page, "<li class=good>"), "no tick in a job that failed");
  expect(has(page, "<td>shared memory</td>") && !has(page, "<td>0 B</td>"), "nothing is sent in shared memory");
  expect(has(page, "on my-machine, 8 cores") && has(page, "<td>my-machine</td>"), "the machine");
  expect(has(page, "<td class=long>killed by signal 11 (Segmentation fault, SIGSEGV)</td>"), "a long cell has lines");
  expect(has(write_json(run), "\"machine\": \"my-machine, 8 cores\""), "the machine in the JSON");
}

void many_ranks_fit(void**) {
  const std::string page = write_page(made_up_run(512, 30, 0), "x.json");
  expect(has(page, "largest rank") && page.size() < 1'000'000, "a page of bearable size");
}

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

int write_all(const std::string& folder) {
  const struct {
    const char* name;
    Run run;
  } runs[] = {{"good", made_up_run(4, 120, 0)}, {"failed", made_up_run(12, 5000, 137)}, {"empty", Run()}};
  for (const auto& [name, run] : runs) {
    write_file(folder + "/" + name + ".html", write_page(run, std::string(name) + ".json"));
    write_file(folder + "/" + name + ".json", write_json(run));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == std::string("--write")) return write_all(argv[2]);
  const CMUnitTest tests[] = {
      ddp_test(numbers_are_short),
      ddp_test(axes_end_beyond_the_values),
      ddp_test(a_gap_breaks_a_line),
      ddp_test(a_page_says_what_happened),
      ddp_test(a_run_without_passes_has_a_page),
      ddp_test(many_ranks_fit),
      ddp_test(what_is_small_or_failed_looks_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
