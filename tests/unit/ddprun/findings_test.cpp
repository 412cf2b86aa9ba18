// SPDX-License-Identifier: Apache-2.0
// Findings about machines that need not be this one.
#include "ddprun/findings.hpp"

#include <climits>

#include "support/check.hpp"

using namespace ddp::ddprun;

Machine good() {
  Machine machine;
  machine.ranks = machine.cores = machine.cores_of_machine = 8;
  machine.huge_pages = "always [madvise] never";
  machine.shared_huge_pages = "always within_size advise [never] deny force";
  machine.descriptors = 4096;
  machine.locked_bytes = INT64_MAX;
  machine.available_bytes = int64_t{16} << 30;
  machine.library = "libddp 0.1.0";
  return machine;
}

/// The text at this level that has these words; "": no such text.
std::string find(const Machine& machine, Level level, const std::string& words) {
  for (const Finding& finding : judge(machine))
    if (finding.level == level && finding.text.find(words) != std::string::npos) return finding.text;
  return "";
}

ddp_case(a_good_machine_has_nothing_to_mend) {
  for (const Finding& finding : judge(good())) expect(finding.level == Level::kFine, finding.text);
}

ddp_case(each_defect_has_its_sentence_and_what_to_do) {
  struct Case {
    Level level;
    const char* words;
    void (*spoil)(Machine&);
  };
  const Case cases[] = {
      {Level::kProblem, "start at most 8 here", [](Machine& m) { m.ranks = 9; }},
      {Level::kAdvice, "only 4 of the machine's 8 cores", [](Machine& m) { m.ranks = m.cores = 4; }},
      {Level::kAdvice, "echo madvise >", [](Machine& m) { m.huge_pages = "always madvise [never]"; }},
      {Level::kAdvice, "no transparent huge pages", [](Machine& m) { m.huge_pages = ""; }},
      {Level::kAdvice, "leaves the choice to libddp", [](Machine& m) { m.shared_huge_pages = "always never [deny]"; }},
      {Level::kProblem, "ulimit -n 1024", [](Machine& m) { m.descriptors = 1023; }},
      {Level::kAdvice, "of memory are free", [](Machine& m) { m.available_bytes = 1 << 20; }},
      {Level::kAdvice, "ulimit -l unlimited",
       [](Machine& m) {
         m.gpu_driver = "570.1";
         m.locked_bytes = 65536;
       }},
      {Level::kProblem, "set DDP_SOCKET_IFNAME", [](Machine& m) { m.several_machines = true; }},
      {Level::kAdvice, "tcp_slow_start_after_idle=0",
       [](Machine& m) {
         m.several_machines = true;
         m.interface = "eth0 (10.0.0.2)";
         m.slow_start_idle = 1;
       }},
      {Level::kProblem, "libddp was not found", [](Machine& m) { m.library = ""; }},
  };
  for (const Case& each : cases) {
    Machine machine = good();
    expect(find(machine, each.level, each.words).empty(), std::string("not before: ") + each.words);
    each.spoil(machine);
    expect(!find(machine, each.level, each.words).empty(), each.words);
  }
}

ddp_case(memory_that_may_be_locked_matters_with_a_gpu_alone) {
  Machine machine = good();
  machine.locked_bytes = 65536;
  expect(find(machine, Level::kAdvice, "ulimit -l").empty(), "no GPU");
}

ddp_case(what_is_unknown_is_not_judged) {
  Machine machine = good();
  machine.descriptors = machine.available_bytes = machine.locked_bytes = machine.cache_bytes = -1;
  machine.cores_of_machine = -1;
  for (const Finding& finding : judge(machine)) expect(finding.level == Level::kFine, finding.text);
}

ddp_case(findings_travel_as_text) {
  const std::vector<Finding> sent = {{Level::kFine, "a"}, {Level::kProblem, "b: do c"}, {Level::kAdvice, "2 d"}};
  const std::vector<Finding> got = read_findings(write_findings(sent) + "nonsense\n9 x\n1\n");
  expect_equal(got.size(), sent.size(), "how many");
  for (size_t i = 0; i < sent.size(); ++i)
    expect(got[i].level == sent[i].level && got[i].text == sent[i].text, sent[i].text);
}

ddp_case(this_machine_can_be_read) {
  const Machine machine = read_machine(3, "127.0.0.1");
  expect_equal(machine.ranks, 3, "ranks");
  expect(machine.cores >= 1 && machine.descriptors > 0 && machine.available_bytes > 0, "what every Linux has");
  expect_equal(machine.interface, std::string("lo (127.0.0.1)"), "the way to itself");
}
