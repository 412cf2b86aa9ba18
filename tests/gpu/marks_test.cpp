// SPDX-License-Identifier: Apache-2.0
// A mark waits for no other rank, also where NCCL connects an algorithm when it is used first: all marks of rank 0 return
// before rank 1 makes one.
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp::test::card;

namespace {

struct Way {
  const char* name;
  bool own_gradients = false;
  bool shard = false;
  bool in_backward = false;
  bool own_values = false;
  bool reproducible = false;
  bool partial = false;  // unused parameters are allowed, and gradients have weights
  ddp_dtype wire = static_cast<ddp_dtype>(0);
  ddp_dtype dtype = DDP_F32;
};
constexpr Way kWays[] = {
    {.name = "plain"},
    {.name = "own gradients", .own_gradients = true},
    {.name = "BF16", .dtype = DDP_BF16},
    {.name = "F16 on the wire", .wire = DDP_F16},
    {.name = "in backward", .in_backward = true},
    {.name = "sharded", .shard = true},
    {.name = "sharded in backward", .shard = true, .in_backward = true},
    {.name = "sharded in backward, all kept by libddp", .shard = true, .in_backward = true, .own_values = true},
    {.name = "sharded in backward, own gradients", .own_gradients = true, .shard = true, .in_backward = true},
    {.name = "weights and unused", .partial = true},
    {.name = "sharded, weights and unused", .shard = true, .in_backward = true, .partial = true},
    {.name = "reproducible", .reproducible = true},
    {.name = "reproducible, weights and unused", .reproducible = true, .partial = true},
    {.name = "reproducible, sharded in backward", .shard = true, .in_backward = true, .reproducible = true},
};

Plan plan_of(const Rank& at, const Way& way) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.fine = false;
  plan.dtype = way.dtype;
  plan.own_gradients = way.own_gradients;
  plan.counts = {7, 5000, 1, 300'000, 3000, 64, 20'000, 900};
  plan.options = [way](ddp_model_options& options) {
    options.own_values = way.own_values ? 1 : 0;
    options.wire = way.wire;
    options.bucket_bytes = 1'000'000;
    if (way.partial) options.unused = DDP_UNUSED_ALLOW, options.divisor = DDP_DIVISOR_WEIGHTS;
  };
  return plan;
}

GroupHandle group_for(const Rank& at, const Way& way) {
  auto options = defaults<ddp_group_options>();
  options.device_index = at.place.device;
  options.timeout_ms = 20'000;
  options.reproducible = way.reproducible ? 1 : 0;
  ddp_group* made = nullptr;
  OK(ddp_group_split(at.group, 0, at.rank, &options, &made));
  return GroupHandle(made);
}

OptimizerHandle sgd_for(ddp_model* model, const Way& way) {
  auto rule = defaults<ddp_sgd_options>();
  auto shared = defaults<ddp_optimizer_options>();
  rule.rate = 0.5;
  shared.shard = way.shard;
  shared.in_backward = way.in_backward;
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_sgd(model, &rule, &shared, &made));
  return OptimizerHandle(made);
}

/// The group of the ranks' hosts reports that rank 0 has marked.
void pass_in_turn(const Rank& at, Trainer& t, int step) {
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  if (at.rank != 0) OK(ddp_group_barrier(at.group));
  t.fill_and_mark(step);
  if (at.rank == 0) OK(ddp_group_barrier(at.group));
  OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
}

ddp_world_case(marks_return_before_another_rank_marks, 2) {
  for (const Way& way : kWays) {
    const GroupHandle group = group_for(at, way);
    Trainer t(group.get(), plan_of(at, way));
    const OptimizerHandle optimizer = sgd_for(t.model.get(), way);
    for (int step = 0; step < 3; ++step) {
      try {
        pass_in_turn(at, t, step);
      } catch (const std::exception& error) {
        throw std::runtime_error(std::string(way.name) + ", pass " + std::to_string(step) + ": " + error.what());
      }
      OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
    }
    t.stream.wait();
  }
}

/// Its buckets are of other sizes, and NCCL is there already.
ddp_world_case(so_do_those_of_a_second_model, 2) {
  const GroupHandle group = group_for(at, kWays[0]);
  Plan plan = plan_of(at, kWays[0]);
  plan.counts = {64, 64};
  Trainer small(group.get(), plan);
  pass_in_turn(at, small, 0);
  plan.counts = {1'000'000, 100};
  Trainer large(group.get(), plan);
  pass_in_turn(at, large, 0);
  pass_in_turn(at, small, 1);
  small.stream.wait(), large.stream.wait();
}

gpu_cases(need_world());

}  // namespace
