// SPDX-License-Identifier: Apache-2.0
// The page that a rank writes into the folder that its launcher watches, compared with the results of the API.
#include "trace/live.hpp"

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

struct Training {
  Training(const Folder& folder, int rank, int size, int recoverable = 0) {
    setenv("DDP_WATCH_DIR", folder.path().c_str(), 1);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    ddp_group_options options = patient_options(rank, size);
    options.recoverable = recoverable;
    group = create_group("file://" + folder.path() + "/meet", options);
    model = model_on(group);
    OK(ddp_optimizer_create_sgd(model, nullptr, nullptr, &sgd));
  }
  ddp_model* model_on(ddp_group* on) {
    ddp_model* made = nullptr;
    OK(ddp_model_create(on, nullptr, &made));
    OK(ddp_model_add_array(made, "w", value, grad, 4, nullptr));
    OK(ddp_model_commit(made, nullptr));
    return made;
  }
  void pass(ddp_model* on, bool marks = true) {
    OK(ddp_model_begin_backward(on, DDP_PASS_REDUCE));
    if (marks) OK(ddp_model_mark_ready(on, 0, nullptr));
    const ddp_status status = ddp_model_end_backward(on, nullptr);
    expect(status == (marks ? DDP_OK : DDP_ERROR_INVALID_STATE), ddp_last_error());
  }
  float value[4] = {}, grad[4] = {1, 2, 3, 4};
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* sgd = nullptr;
};

trace::LiveNumbers numbers_of(const Folder& folder, int rank) {
  const auto found = trace::read_live(trace::live_path(folder.path(), rank));
  expect(found.has_value(), "a page of rank " + std::to_string(rank));
  return *found;
}

void expect_done(Procs& procs) { expect_success(procs); }

ddp_case(it_counts_what_the_rank_does) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, rank, 2);
    ddp_model_stats stats{};
    stats.struct_size = sizeof stats;
    for (int step = 0; step < 3; ++step) {
      training.pass(training.model);
      OK(ddp_optimizer_step(training.sgd, nullptr));
    }
    training.pass(training.model, false);
    auto state = defaults<ddp_state>();
    state.model = training.model;
    OK(ddp_state_save_file(&state, (folder.path() + "/saved").c_str()));
    OK(ddp_group_barrier(training.group));
    OK(ddp_model_get_stats(training.model, &stats));
    const trace::LiveNumbers numbers = numbers_of(folder, rank);
    expect_equal(numbers.place.rank, rank, "rank");
    expect_equal(numbers.place.size, 2, "size");
    expect_equal(numbers.passes.count, 3, "passes");
    expect_equal(numbers.passes.voids, 1, "void passes");
    expect_equal(numbers.work.steps, 3, "steps");
    expect_equal(numbers.work.saves, 1, "saves");
    expect(numbers.work.save_ns > 0 && numbers.work.step_ns > 0, "times of saves and steps");
    expect_equal(numbers.passes.backward_ns, stats.total_backward_ns, "backward");
    expect_equal(numbers.passes.comm_ns, stats.total_comm_ns, "communication");
    expect_equal(numbers.passes.exposed_ns, stats.total_exposed_ns, "exposed");
    expect_equal(numbers.passes.sent_bytes, stats.total_sent_bytes, "sent");
    expect_equal(numbers.passes.gradient_bytes, 16, "bytes of gradients");
    expect_equal(numbers.passes.buckets, 1, "buckets");
    expect(numbers.passes.largest_bucket >= 16 && numbers.passes.smallest_bucket == numbers.passes.largest_bucket,
           "bytes of the bucket");
    expect(numbers.place.call > 0 && numbers.place.in_call == 0 && numbers.place.call_since_ns >= numbers.passes.last_at_ns,
           "the barrier was last");
    ddp_optimizer_destroy(training.sgd);
    ddp_model_destroy(training.model);
    ddp_group_destroy(training.group);
  });
  expect_done(procs);
  expect_equal(numbers_of(folder, 1).place.held, 0, "held by nobody");
}

ddp_case(a_sub_group_counts_and_another_group_does_not) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, rank, 2);
    ddp_group *part = nullptr, *other = create_group("file://" + folder.path() + "/other", patient_options(rank, 2));
    OK(ddp_group_split(training.group, rank, 0, nullptr, &part));
    training.pass(training.model_on(part));
    training.pass(training.model_on(other));
    const trace::LiveNumbers numbers = numbers_of(folder, rank);
    expect_equal(numbers.passes.count, 1, "passes");
    expect_equal(numbers.place.size, 2, "size");
  });
  expect_done(procs);
}

ddp_case(what_a_killed_rank_did_last_stays) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter& report) {
    Training training(folder, rank, 2, 1);
    training.pass(training.model);
    expect(ddp_group_barrier(training.group) == DDP_OK, "the first barrier");
    if (rank == 1) {
      report.say("ready");
      for (;;) OK(ddp_group_barrier(training.group));
    }
    while (ddp_group_barrier(training.group) == DDP_OK) continue;
    auto rule = defaults<ddp_recover_options>();
    rule.allow_half = 1;
    OK(ddp_group_recover(training.group, &rule, nullptr));
    training.pass(training.model);
    const trace::LiveNumbers numbers = numbers_of(folder, rank);
    expect_equal(numbers.place.recoveries, 1, "recoveries");
    expect_equal(numbers.place.generation, 2, "generation");
    expect_equal(numbers.place.size, 1, "ranks that are left");
    expect_equal(numbers.passes.count, 2, "passes");
  });
  procs.wait_for(1, "ready");
  procs.signal(1, SIGKILL);
  expect(procs.wait_one(0).exit_code == 0, procs.wait_one(0).describe());
  const trace::LiveNumbers dead = numbers_of(folder, 1);
  expect_equal(dead.passes.count, 1, "passes of the dead");
  expect(dead.place.held == 1 && dead.made.pid == procs.pid(1), "it did not let go");
}
