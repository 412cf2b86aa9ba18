// SPDX-License-Identifier: Apache-2.0
// The lines of the membership log, as a JSON reader of another project sees them.
#include "group/membership_log.hpp"

#include <nlohmann/json.hpp>

#include "group/split.hpp"
#include "support/check.hpp"
#include "support/state_world.hpp"

using nlohmann::json;

/// While it lives, groups of this process write there.
class LogTo : NotCopied {
 public:
  explicit LogTo(const std::string& path) { (void)setenv("DDP_MEMBERSHIP_LOG", path.c_str(), 1); }
  ~LogTo() { (void)unsetenv("DDP_MEMBERSHIP_LOG"); }
};

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

ddp_case(a_group_that_is_created_is_one_line) {
  const TemporaryFolder folder;
  const LogTo log(folder.file("log"));
  for (const int size : {1, 3}) run_groups(size, [](group::Group& group, int) { group.barrier(); });
  const std::vector<json> lines = lines_of(folder.file("log"));
  expect_equal(lines.size(), size_t{2}, "lines");
  const json& line = lines[1];
  expect(line["event"] == "created" && line["generation"] == 1 && line["step"] == 0 && line["parts"] == 3, line.dump());
  expect(line["sum_order"] == "rank" && line["time"].get<std::string>().size() == 20, line.dump());
  expect_equal(line["ranks"].size(), size_t{3}, "ranks");
  for (int rank = 0; rank < 3; ++rank) {
    const json& each = line["ranks"][static_cast<size_t>(rank)];
    expect(each["rank"] == rank && each["first_part"] == rank && each["part_count"] == 1, each.dump());
    expect(each["pid"] == getpid() && !each["host"].get<std::string>().empty(), each.dump());
  }
}

ddp_case(parts_are_dealt_out_without_a_gap) {
  const TemporaryFolder folder;
  const LogTo log(folder.file("log"));
  ddp_group_options options = world_options();
  options.virtual_ranks = 8;
  run_groups_with(3, options, [](group::Group& group, int) { group.barrier(); });
  const json line = lines_of(folder.file("log")).at(0);
  expect(line["parts"] == 8, line.dump());
  int next = 0;
  for (const json& each : line["ranks"]) {
    expect(each["first_part"] == next, line.dump());
    next += each["part_count"].get<int>();
  }
  expect_equal(next, 8, "parts in all");
}

ddp_case(a_load_says_which_steps_are_in_the_checkpoint) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  run_groups(2, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(1);
    world.save(path);
  });
  const LogTo log(folder.file("log"));
  run_groups(2, [&](group::Group& group, int) {
    StateWorld world(group);
    (void)world.load(path);
    (void)checkpoint::load_file("load", {*world.model}, path, std::nullopt, {.partial = true});
  });
  const std::vector<json> lines = lines_of(folder.file("log"));
  expect_equal(lines.size(), size_t{3}, "lines");
  expect(lines[1]["event"] == "loaded" && lines[1]["generation"] == 1 && lines[1]["step"].get<int64_t>() > 1000,
         lines[1].dump());
  expect(lines[2]["event"] == "loaded" && lines[2]["step"].is_null(), lines[2].dump());
}

ddp_case(sub_groups_are_not_logged) {
  const TemporaryFolder folder;
  const LogTo log(folder.file("log"));
  run_groups(2, [](group::Group& group, int rank) {
    const auto part = group::split_group(group, {0, rank}, group.options());
    part->barrier();
    group.barrier();
  });
  expect_equal(lines_of(folder.file("log")).size(), size_t{1}, "lines");
}

ddp_case(a_file_that_cannot_be_written_is_no_failure) {
  const TemporaryFolder folder;
  const LogTo log(folder.file("none/log"));
  run_groups(2, [](group::Group& group, int) { group.barrier(); });
}

ddp_ranks_case(run_groups, names_of_hosts_are_text, 1) {
  const json line = json::parse(group::membership_line(group.control(), group.options(), {"a\"b\\c\n", 7, -1}, "now"));
  expect(line["event"] == "a\"b\\c\n" && line["generation"] == 7 && line["step"].is_null(), line.dump());
}
