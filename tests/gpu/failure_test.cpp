// SPDX-License-Identifier: Apache-2.0
// A rank that is killed or stopped in the middle of a step: every survivor gets the right error within the limit, and its
// parameters are those of a whole step, never of half a one; or, with in_backward, where the pass had begun to update, half
// a one and refused (include/ddp/optimizer.h, undo). Ranks are processes; on the fake GPU they would be threads,
// which cannot be killed.

#include "gpu/support/adam.hpp"
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp::test::card;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWholeSteps = 4;
constexpr double kLimit = 3.0 /* dead_after_ms */ + 2.0 + 1.0 /* a machine that is busy */;

/// The same gradients on every rank, so that the CPU alone knows what all compute.
Plan plan_for(Place place) {
  Plan plan;
  plan.place = place;
  plan.fine = false;
  return plan;
}

std::string values_after(int steps) {
  const GroupHandle group = alone();
  Trainer t(group.get(), plan_for(kCpu));
  const OptimizerHandle optimizer = adam(t.model.get(), {});
  for (int step = 0; step < steps; ++step) {
    t.pass(step);
    OK(ddp_optimizer_step(optimizer.get(), nullptr));
  }
  return t.value_bytes();
}

/// Whole steps, then one in which it marks half of its gradients, reports it, and waits for its end.
void half_a_step(Trainer& t, ddp_optimizer* optimizer, Reporter& report) {
  for (int step = 0; step < kWholeSteps; ++step) {
    t.pass(step);
    OK(ddp_optimizer_step(optimizer, t.stream.get()));
  }
  t.stream.wait();
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  for (int32_t p = t.count(); p-- > t.count() / 2;) {
    t.produce(static_cast<size_t>(p), kWholeSteps, t.stream.get());
    OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
  }
  report.say("in the middle");
}

/// Steps until a call fails; the error, its time, and the state after it.
std::string survive(Trainer& t, ddp_optimizer* optimizer, ddp_group* group, bool in_backward) {
  const auto start = Clock::now();
  ddp_status status = DDP_OK;
  for (int32_t p = t.count() / 2; status == DDP_OK && p-- > 0;) {
    t.produce(static_cast<size_t>(p), kWholeSteps, t.stream.get());
    status = ddp_model_mark_ready(t.model.get(), p, t.stream.get());
  }
  if (status == DDP_OK) status = ddp_model_end_backward(t.model.get(), t.stream.get());
  if (status == DDP_OK) status = ddp_optimizer_step(optimizer, t.stream.get());
  // The host does not wait for the GPU, so it may get the error later than it finished the step.
  while (status == DDP_OK && Clock::now() - start < std::chrono::seconds(30)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = ddp_group_status(group);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string text = ddp_last_error();
  expect(status == DDP_ERROR_PEER_FAILED,
         std::string("the status is DDP_ERROR_PEER_FAILED, not ") + ddp_status_name(status) + ": " + text);
  expect_contains(text, "rank 1");
  expect(seconds < kLimit, "it was noticed after " + std::to_string(seconds) + " s");
  const std::string left = t.value_bytes();
  if (!in_backward) expect_same_bytes(left, values_after(kWholeSteps), "parameters of the last whole step");
  expect(ddp_optimizer_step(optimizer, t.stream.get()) != DDP_OK, "a step after it is refused");
  expect_same_bytes(t.value_bytes(), left, "parameters after the refused step");
  return "survived";
}

void lose_rank_1(int size, int signal, const AdamWays& ways) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter& report) -> std::string {
    const Place place = settle_in_process(rank, size);
    const GroupHandle group = join_world(folder, rank, size, place);
    Trainer t(group.get(), plan_for(place));
    const OptimizerHandle optimizer = adam(t.model.get(), ways);
    half_a_step(t, optimizer.get(), report);
    if (rank != 1) return survive(t, optimizer.get(), group.get(), ways.in_backward);
    for (;;) pause();
  });
  for (int rank = 0; rank < size; ++rank) procs.wait_for(rank, "in the middle", 60'000);
  procs.signal(1, signal);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) continue;
    const ProcResult& result = procs.wait_one(rank, 60'000);
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe());
  }
  if (signal != SIGKILL) procs.signal(1, SIGKILL);
}

constexpr AdamWays kWays[] = {{false, false}, {false, true}, {true, false}};

ddp_case(a_killed_rank_of_two_is_named_and_changes_nothing) {
  for (const AdamWays& ways : kWays) lose_rank_1(2, SIGKILL, ways);
}

ddp_case(a_killed_rank_of_three_is_named_and_changes_nothing) {
  for (const AdamWays& ways : kWays) lose_rank_1(3, SIGKILL, ways);
}

ddp_case(a_stopped_rank_is_named_and_changes_nothing) {
  lose_rank_1(2, SIGSTOP, {});
  lose_rank_1(2, SIGSTOP, {true, true});
}

gpu_cases({
  if (is_fake()) end_skipped("ranks must be processes here, and the GPU that is none knows only threads");
  need_world();
});

}  // namespace
