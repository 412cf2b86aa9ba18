// SPDX-License-Identifier: Apache-2.0
// A training whose ranks die is made again from the membership log alone, and ends with the same weights.
#include <nlohmann/json.hpp>

#include "support/check.hpp"
#include "support/survivor.hpp"

using nlohmann::json;

/// From the lines of the log: the ranks that made each step.
std::vector<uint64_t> members_of_steps(const std::vector<json>& lines, int64_t steps) {
  std::vector<uint64_t> members;
  for (size_t line = 0; line < lines.size(); ++line) {
    uint64_t present = 0;
    for (const json& rank : lines[line]["ranks"]) present |= uint64_t{1} << rank["id"].get<int>();
    const int64_t end = line + 1 < lines.size() ? lines[line + 1]["step"].get<int64_t>() : steps;
    expect_equal(lines[line]["step"].get<int64_t>(), static_cast<int64_t>(members.size()), "the first step of a line");
    expect_equal(lines[line]["generation"].get<int64_t>(), static_cast<int64_t>(line) + 1, "generation");
    members.resize(static_cast<size_t>(end), present);
  }
  return members;
}

// Rank 0 dies too, so another rank continues the log.
ddp_case(a_run_that_lost_ranks_is_made_again_from_its_log) {
  const Folder folder;
  const std::string path = folder.path() + "/log";
  Survival plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = 4;
  if (ddp_recover_options_init(&plan.rule, sizeof plan.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
  plan.rule.wait_ms = 10'000;
  Procs procs(plan.ranks, [&](int rank, Reporter& report) {
    (void)setenv("DDP_MEMBERSHIP_LOG", path.c_str(), 1);
    return write_story(Survivor(plan, rank, to(report)).run());
  });
  procs.wait_for(2, "step 10");
  procs.signal(2, SIGKILL);
  procs.wait_for(0, "step 30");
  procs.signal(0, SIGKILL);
  const std::vector<ProcResult> results = procs.wait(60'000);
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  expect_equal(lines.size(), size_t{3}, "lines");
  expect(lines[0]["event"] == "created" && lines[1]["event"] == "recovered" && lines[2]["event"] == "recovered", "events");
  const std::vector<uint64_t> members = members_of_steps(lines, plan.steps);
  expect(members.front() == 0b1111 && members.back() == 0b1010, "who began, and who was left");
  const uint64_t again = replay(members);
  for (const int rank : {1, 3}) {
    expect(results[static_cast<size_t>(rank)].exit_code == 0, results[static_cast<size_t>(rank)].describe());
    const Story story = read_story(results[static_cast<size_t>(rank)].text);
    expect(story.hash == again, "the weights of rank " + std::to_string(rank) + " are those of the replay");
    expect(story.members == members, "the program's own notes say the same");
  }
}
