// SPDX-License-Identifier: Apache-2.0
// The text of --metrics, from a run that nobody made. process/ddprun_metrics_test.sh reads the file of a real job.
#include "ddprun/metrics.hpp"

#include "support/check.hpp"
#include "unit/ddprun/made_up_run.hpp"

using namespace ddp::ddprun;

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

ddp_case(each_rank_has_its_numbers) {
  Run run = made_up_run(4, 30, 0);
  run.ranks[1].counts.steps = 1234;
  run.ranks[1].counts.comm_ns = 1'500'000'000;
  run.ranks[1].end.clear();
  run.ranks[1].group = "g";
  const std::string text = write_metrics(run, false);
  expect(has_line(text, "# TYPE ddp_steps counter"), "a type");
  expect(has_line(text, "ddp_steps_total{rank=\"1\",host=\"node-a\",group=\"g\"} 1234"), "steps");
  expect(has_line(text, "# UNIT ddp_communication_seconds seconds"), "a unit");
  expect(has_line(text, "ddp_communication_seconds_total{rank=\"1\",host=\"node-a\",group=\"g\"} 1.5"), "seconds");
  expect(has_line(text, "ddp_up{rank=\"1\",host=\"node-a\",group=\"g\"} 1"), "it runs");
  expect(has_line(text, "ddp_up{rank=\"3\",host=\"node-b\",group=\"\"} 0"), "it does not");
  expect(has_line(text, "ddp_job_running_ranks 1"), "of all");
  expect(text.ends_with("\n# EOF\n"), "the end");
  expect(text.find("exit_code") == std::string::npos, "while the job runs");
  expect(has_line(write_metrics(made_up_run(4, 30, 137), true), "ddp_job_exit_code 137"), "when it is over");
}

ddp_case(numbers_of_the_program_have_their_name) {
  Run run = made_up_run(2, 30, 0);
  run.ranks[0].program = {{"loss", 0.1, 7}, {"train/acc", NAN, 1}};
  run.ranks[1].program = {{"loss", -INFINITY, 2}};
  run.ranks[1].host = "a \"b\" \\ \n c\xff";
  const std::string text = write_metrics(run, false);
  expect(has_line(text, "ddp_program_value{rank=\"0\",host=\"node-a\",group=\"\",name=\"loss\"} 0.10000000000000001"), text);
  expect(has_line(text, "ddp_program_value{rank=\"0\",host=\"node-a\",group=\"\",name=\"train/acc\"} NaN"), "NaN");
  expect(has_line(text, "ddp_program_values_total{rank=\"0\",host=\"node-a\",group=\"\",name=\"loss\"} 7"), "how often");
  expect(has_line(text,
                  "ddp_program_value{rank=\"1\",host=\"a \\\"b\\\" \\\\   c\xef\xbf\xbd\",group=\"\",name=\"loss\"} -Inf"),
         "a host with odd bytes");
}

ddp_case(nothing_is_well_formed_too) {
  const std::string text = write_metrics(Run(), false);
  expect(text.ends_with("# EOF\n") && has_line(text, "ddp_job_ranks 0"), text);
}
