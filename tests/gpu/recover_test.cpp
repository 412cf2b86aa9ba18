// SPDX-License-Identifier: Apache-2.0
// Processes with models on GPUs: one is killed in the middle of a step, the others recover and repeat it, another one joins
// them, and all end with the values of one process that saw no death. Ranks are processes; on the fake GPU they
// would be threads, which cannot be killed: see gpu_host/recoverable_test.cpp.
#include <ddp/recover.h>

#include "gpu/support/adam.hpp"
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp::test::card;

namespace {

constexpr int kSize = 3;
constexpr int kWholeSteps = 4;

struct Way {
  const char* name;
  AdamWays ways;
};

/// The same gradients on every rank, so that one process knows what all compute.
Plan plan_for(Place place, const Way& way) {
  Plan plan;
  plan.place = place;
  plan.fine = false;
  plan.own_gradients = way.ways.own_gradients;
  return plan;
}

std::string values_after(int steps, const Way& way) {
  const GroupHandle group = alone();
  Trainer t(group.get(), plan_for(kCpu, way));
  const OptimizerHandle optimizer = adam(t.model.get(), way.ways);
  for (int step = 0; step < steps; ++step) {
    t.pass(step);
    OK(ddp_optimizer_step(optimizer.get(), nullptr));
  }
  return t.value_bytes();
}

GroupHandle meet(const Folder& folder, int number, Place place, bool joins) {
  ddp_group_options options = world_options_of(joins ? -1 : number, joins ? -1 : kSize, place);
  options.recoverable = 1;
  options.join = joins;
  ddp_group* group = nullptr;
  OK(ddp_group_create(("file://" + folder.path() + "/meet").c_str(), &options, &group));
  return GroupHandle(group);
}

/// One process and its training. Kept while the group changes.
struct Member : NotCopied {
  Member(const Folder& folder, int number, Place place, const Way& of, bool joins)
      : way(of), group(meet(folder, number, place, joins)), t(group.get(), plan_with_optimizer(place)) {}
  ~Member() { optimizer.reset(); }

  /// A new rank gets the optimizer's state when it commits.
  Plan plan_with_optimizer(Place place) {
    Plan plan = plan_for(place, way);
    plan.before_commit = [this](ddp_model* model) { optimizer = adam(model, way.ways); };
    return plan;
  }
  [[nodiscard]] int steps() const {
    int64_t count = 0;
    OK(ddp_optimizer_get_step_count(optimizer.get(), &count));
    return static_cast<int>(count);
  }
  [[nodiscard]] ddp_status step() {
    ddp_status status = ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE);
    const int step = steps();
    for (int32_t p = t.count(); status == DDP_OK && p-- > 0;) {
      t.produce(static_cast<size_t>(p), step, t.stream.get());
      status = ddp_model_mark_ready(t.model.get(), p, t.stream.get());
    }
    if (status == DDP_OK) status = ddp_model_end_backward(t.model.get(), t.stream.get());
    if (status == DDP_OK) status = ddp_optimizer_step(optimizer.get(), t.stream.get());
    return status;
  }
  void steps_to(int count) {
    while (steps() < count) OK(step());
  }
  /// Gives the seconds.
  double recover(int size, const char* when) {
    ddp_recovery recovery{};
    recovery.struct_size = sizeof recovery;
    OK(ddp_group_recover(group.get(), nullptr, &recovery));
    expect(recovery.size == size, std::string(when) + ": " + std::to_string(recovery.size) + " ranks");
    expect(recovery.step == steps(), std::string(when) + ": step " + std::to_string(recovery.step));
    return recovery.seconds;
  }
  void expect_values(const char* when) const {
    expect_same_bytes(t.value_bytes(), values_after(steps(), way), std::string(way.name) + ", " + when);
  }

  const Way way;
  GroupHandle group;
  OptimizerHandle optimizer;  // before what makes it
  Trainer t;
};

/// Marks half of its gradients, reports it, and waits for its end.
void half_a_step(Member& member, Reporter& report) {
  OK(ddp_model_begin_backward(member.t.model.get(), DDP_PASS_REDUCE));
  for (int32_t p = member.t.count(); p-- > member.t.count() / 2;) {
    member.t.produce(static_cast<size_t>(p), member.steps(), member.t.stream.get());
    OK(ddp_model_mark_ready(member.t.model.get(), p, member.t.stream.get()));
  }
  report.say("in the middle");
}

void go_on(Member& member, Reporter& report) {
  ddp_status status = DDP_OK;
  for (int32_t p = member.t.count() / 2; status == DDP_OK && p-- > 0;) {
    member.t.produce(static_cast<size_t>(p), member.steps(), member.t.stream.get());
    status = ddp_model_mark_ready(member.t.model.get(), p, member.t.stream.get());
  }
  if (status == DDP_OK) status = ddp_model_end_backward(member.t.model.get(), member.t.stream.get());
  expect(status == DDP_ERROR_PEER_FAILED, std::string("the pass fails with the rank: ") + ddp_last_error());
  const double seconds = member.recover(kSize - 1, "after the death");
  expect(member.steps() == kWholeSteps, "the step of before");
  member.expect_values("recovered");
  member.steps_to(kWholeSteps + 2);
  member.expect_values("two steps later");
  report.say("stands " + std::to_string(seconds));
  while ((status = member.step()) == DDP_OK) {
  }
  expect(status == DDP_ERROR_ABORTED, std::string("the new rank is announced: ") + ddp_last_error());
  report.say("grown " + std::to_string(member.recover(kSize, "with a new rank")));
}

std::string run_member(const Folder& folder, int number, const Way& way, Reporter& report) {
  const Place place = is_fake() ? kCpu : settle_in_process(number, kSize + 1);
  const bool joins = number == kSize;
  const std::string stands = folder.path() + "/stands";
  struct stat found {};
  while (joins && ::stat(stands.c_str(), &found) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Member member(folder, number, place, way, joins);
  if (!joins) {
    member.steps_to(kWholeSteps);
    half_a_step(member, report);
    if (number == 1)
      for (;;) pause();
    go_on(member, report);
  }
  member.expect_values("with the new rank");
  member.steps_to(member.steps() + 2);
  member.expect_values("at the end");
  return "went on";
}

void lose_and_gain(const Way& way) {
  const Folder folder;
  Procs procs(kSize + 1, [&](int number, Reporter& report) { return run_member(folder, number, way, report); });
  for (int number = 0; number < kSize; ++number) procs.wait_for(number, "in the middle", 60'000);
  procs.signal(1, SIGKILL);
  for (const int number : {0, 2}) procs.wait_for(number, "stands", 60'000);
  std::ofstream(folder.path() + "/stands").put('1');
  for (const int number : {0, 2, kSize}) {
    const ProcResult& result = procs.wait_one(number, 60'000);
    expect(result.exit_code == 0, std::string(way.name) + ", process " + std::to_string(number) + ": " + result.describe());
    std::printf("%s, process %d: %s\n", way.name, number, result.said.c_str());
  }
}

ddp_case(killed_in_a_step) { lose_and_gain({"Adam", {}}); }
ddp_case(killed_in_a_step_with_gradients_of_the_library) {
  lose_and_gain({"gradients of the library", {false, false, true}});
}
ddp_case(killed_in_a_step_within_the_pass) { lose_and_gain({"in backward", {false, true, true}}); }

gpu_cases(if (!is_fake()) need_world());

}  // namespace
