// SPDX-License-Identifier: Apache-2.0
// A model and its group are destroyed while kernels that use them are still to run: nothing may be freed under the device's
// hands. Two ranks, which are processes of this one or, under ddprun, this process (so that compute-sanitizer can be put
// before each rank: ddprun -n 2 compute-sanitizer experiments.gpu --part pending).
#include "gpu/experiments/experiments.hpp"
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

enum class When { kAfterPass, kInPass, kAfterStep };
constexpr When kAll[] = {When::kAfterPass, When::kInPass, When::kAfterStep};

/// A group that can be destroyed here, while the one that the ranks met in stays.
GroupHandle split_off(const Rank& at) {
  ddp_group* made = nullptr;
  OK(ddp_group_split(at.group, 0, at.rank, nullptr, &made));
  return GroupHandle(made);
}

/// Lives and ends once. The program's own memory outlives the work, as the rules want it.
void live_and_end(const Rank& at, When when, bool own_gradients) {
  GroupHandle group = split_off(at);
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.own_gradients = own_gradients;
  Trainer t(group.get(), plan);
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_adam(t.model.get(), nullptr, nullptr, &made));
  OptimizerHandle optimizer(made);
  t.pass(0);
  const SlowWork slow(at.place);
  slow.enqueue(t.stream.get());  // everything below is still to come when the handles go
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  const int32_t last = when == When::kInPass ? t.count() / 2 : 0;
  t.put_aside(1);
  slow.enqueue(t.stream.get());
  for (int32_t p = t.count(); p-- > last;) {
    t.copy_grad(static_cast<size_t>(p), t.stream.get());
    OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
  }
  if (when != When::kInPass) OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
  if (when == When::kAfterStep) OK(ddp_optimizer_step(made, t.stream.get()));
  OK(ddp_group_barrier(at.group));  // of the hosts: a rank that left sooner would end the other's step
  optimizer.reset();
  t.model.reset();
  group.reset();
  t.stream.wait();
}

std::string describe(When when, bool own_gradients) {
  const char* const where = when == When::kAfterPass ? "after" : when == When::kInPass ? "in" : "after a step behind";
  return std::string("model and group destroyed ") + where + " a pass, " + (own_gradients ? "through a copy" : "in place");
}

bool is_of_ddprun() { return getenv("WORLD_SIZE") != nullptr && getenv("RANK") != nullptr; }

/// This process is a rank that a launcher has started.
void run_as_rank(Report& report, const Options& options) {
  need_devices(1);
  const int rank = std::atoi(getenv("RANK")), size = std::atoi(getenv("WORLD_SIZE"));
  const Place place = is_fake() ? kCpu : settle_in_process(rank, size);  // the fake GPU knows only threads
  ddp_group_options wanted = world_options_of(rank, size, place);
  wanted.dead_after_ms = 30'000;  // a sanitizer slows everything down
  wanted.timeout_ms = 120'000;
  ddp_group* made = nullptr;
  OK(ddp_group_create(nullptr, &wanted, &made));
  const GroupHandle group(made);
  for (const When when : kAll)
    for (const bool own_gradients : {false, true}) {
      if (options.quick && (when != When::kAfterStep || own_gradients)) continue;
      live_and_end({made, rank, size, place}, when, own_gradients);
      if (rank == 0) report.verdict(describe(when, own_gradients), true, "each rank a process of ddprun");
    }
}

}  // namespace

void destroy_with_work_pending(Report& report, const Options& options) {
  if (is_of_ddprun()) return run_as_rank(report, options);
  need_world();
  for (const When when : kAll)
    for (const bool own_gradients : {false, true}) {
      const auto start = Clock::now();
      run_world(2, [&](const Rank& at) { live_and_end(at, when, own_gradients); });
      report.verdict(describe(when, own_gradients), true,
                     std::to_string(static_cast<int>(ms_since(start))) + " ms with the start of two ranks");
    }
}

}  // namespace ddp::experiments
