// SPDX-License-Identifier: Apache-2.0
// Traces of a group while a thread works in a sub-group all the time, which shares what is recorded.
#include <nlohmann/json.hpp>

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

using Json = nlohmann::json;

constexpr int kTraces = 20;

/// Until rank 0 has had enough.
void work_in(ddp_group* part, const std::atomic<bool>& enough) {
  float going = 1;
  const ddp_tensor tensor{&going, DDP_F32, DDP_CPU, 0, 1, {1}};
  while (going > 0) {
    if (ddp_group_get_rank(part) == 0 && enough.load()) going = 0;
    OK(ddp_group_all_reduce(part, &tensor, DDP_MIN, nullptr));
  }
}

int64_t count(const Json& trace, int rank, const std::string& name) {
  int64_t found = 0;
  for (const Json& event : trace.at("traceEvents"))
    found += event.at("ph") == "X" && event.at("pid") == rank && event.at("name") == name ? 1 : 0;
  return found;
}

/// The sub-group's own trace is refused meanwhile, and it cannot end the other one.
ddp_case(traces_follow_each_other_beside_a_sub_group) {
  const Folder folder;
  const std::string file = folder.path() + "/trace.json";
  Procs procs(2, [&](int rank, Reporter&) {
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", patient_options(rank, 2));
    ddp_group* part = nullptr;
    OK(ddp_group_start_trace(group, file.c_str(), nullptr));
    OK(ddp_group_split(group, 0, rank, nullptr, &part));
    expect(ddp_group_start_trace(part, "x", nullptr) == DDP_ERROR_INVALID_STATE, "a trace is on");
    expect(ddp_group_stop_trace(part) == DDP_ERROR_INVALID_STATE, "it is another group's");
    OK(ddp_group_stop_trace(group));
    std::atomic<bool> enough{false};
    std::thread works([&] { work_in(part, enough); });
    for (int n = 0; n < kTraces; ++n) {
      OK(ddp_group_start_trace(group, file.c_str(), nullptr));
      OK(ddp_group_barrier(group));
      OK(ddp_group_stop_trace(group));
    }
    enough = true;
    works.join();
    OK(ddp_group_start_trace(part, file.c_str(), nullptr));
    expect(ddp_group_stop_trace(group) == DDP_ERROR_INVALID_STATE, "it is the sub-group's");
    ddp_group_destroy(part);  // with its trace
    OK(ddp_group_start_trace(group, file.c_str(), nullptr));
    OK(ddp_group_barrier(group));
    OK(ddp_group_stop_trace(group));
    ddp_group_destroy(group);
  });
  expect_success(procs);
  const Json trace = Json::parse(std::ifstream(file));
  for (int rank = 0; rank < 2; ++rank)
    expect_equal(count(trace, rank, "ddp_group_barrier"), int64_t{1}, "of the last trace");
}
