// SPDX-License-Identifier: Apache-2.0
// A rank dies while ranks make steps on their own: the others recover, take the global values, momentum and place in the
// schedule of one of them, and continue. Ranks are processes over shared memory.

#include "ddp/experimental.h"
#include "support/check.hpp"
#include "support/on_processes.hpp"

constexpr int kRanks = 3;
constexpr int64_t kSteps = 40;

void ok(ddp_status status) {
  if (status != DDP_OK) throw Error(status, ddp_last_error());
}

struct World {
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* sgd = nullptr;
  ddp_outer* outer = nullptr;
  std::vector<float> value = std::vector<float>(1000, 1.0F), grad = std::vector<float>(1000);

  World(const std::string& rendezvous, int rank) {
    ddp_group_options options;
    ok(ddp_group_options_init(&options, sizeof options));
    options.rank = rank;
    options.world_size = kRanks;
    options.recoverable = 1;
    options.heartbeat_ms = 100;
    ok(ddp_group_create(rendezvous.c_str(), &options, &group));
    ok(ddp_model_create(group, nullptr, &model));
    ok(ddp_model_add_array(model, "w", value.data(), grad.data(), 1000, nullptr));
    ok(ddp_model_commit(model, nullptr));
    ok(ddp_optimizer_create_sgd(model, nullptr, nullptr, &sgd));
    ddp_outer_options outer_options;
    ok(ddp_outer_options_init(&outer_options, sizeof outer_options));
    outer_options.every = 4;
    outer_options.overlap = 2;
    outer_options.keep = 0.5;
    outer_options.bits = 8;
    ok(ddp_outer_create(model, &outer_options, &outer));
  }
  ~World() {
    ddp_outer_destroy(outer);
    ddp_optimizer_destroy(sgd);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }
  [[nodiscard]] int64_t steps() const {
    ddp_outer_stats stats{};
    stats.struct_size = sizeof stats;
    ok(ddp_outer_get_stats(outer, &stats));
    return stats.steps;
  }
  /// The first call that fails: the death of another rank may be known before the outer optimizer waits for it.
  ddp_status step() {
    for (size_t i = 0; i < grad.size(); ++i)
      grad[i] = value[i] - static_cast<float>((static_cast<size_t>(ddp_group_get_rank(group)) + i) % 7);
    ddp_status status = ddp_model_begin_backward(model, DDP_PASS_LOCAL);
    if (status == DDP_OK) status = ddp_model_mark_ready(model, 0, nullptr);
    if (status == DDP_OK) status = ddp_model_end_backward(model, nullptr);
    if (status == DDP_OK) status = ddp_optimizer_step(sgd, nullptr);
    return status == DDP_OK ? ddp_outer_step(outer) : status;
  }
};

std::string train(const std::string& rendezvous, int rank, Reporter& report) {
  World world(rendezvous, rank);
  int recoveries = 0;
  while (world.steps() < kSteps) {
    if (world.steps() == 9) report.say("step 9");
    if (world.steps() == 10 && rank == 1) raise(SIGKILL);
    if (world.step() == DDP_OK) continue;
    expect(ddp_group_status(world.group) != DDP_OK, std::string("the group is broken: ") + ddp_last_error());
    ok(ddp_group_recover(world.group, nullptr, nullptr));
    ++recoveries;
  }
  ok(ddp_outer_sync(world.outer));
  ok(ddp_model_check_replicas(world.model, nullptr));
  expect_equal(recoveries, 1, "recoveries");
  expect_equal(ddp_group_get_size(world.group), 2, "ranks that are left");
  int64_t hash = 0;
  ok(ddp_model_get_hash(world.model, &hash));
  return std::to_string(hash);
}

ddp_case(the_others_go_on) {
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter& report) { return train("file://" + folder.path() + "/meet", rank, report); });
  const std::vector<ProcResult> results = procs.wait(60'000);
  expect_equal(results[1].signal, SIGKILL, "how rank 1 ended");
  for (const int rank : {0, 2})
    expect(results[static_cast<size_t>(rank)].exit_code == 0, results[static_cast<size_t>(rank)].describe());
  expect(results[0].text == results[2].text && !results[0].text.empty(), "the same values on both");
}
