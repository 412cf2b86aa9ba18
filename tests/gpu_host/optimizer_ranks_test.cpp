// SPDX-License-Identifier: Apache-2.0
// Sharded steps and steps within a pass, on GPUs of several ranks, with tensors of all types on the GPU or in both memories:
// norms, failures, and what they cost. That all of them have the bits of host memory, void passes, and gradients that are
// not finite are in conformance/fused_test.cpp.

#include "optim/ema.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

Ways ways_of(Home home, bool shard, bool in_backward = false) {
  Ways ways = mixed_ways(home);
  ways.unused = DDP_UNUSED_ERROR;
  ways.shard = shard;
  ways.in_backward = in_backward;
  return ways;
}

void train(Training& world, int step) { world.train(world.group.rank(), step); }

void on_two_gpus(const std::function<void(group::Group&, int)>& body) { run_on(Path::kGpu, 2, body); }

ddp_case(norms_of_slices_are_those_of_the_whole) {
  for (const Home home : {Home::kGpu, Home::kBoth})
    on_two_gpus([&](group::Group& group, int) {
      Training whole(group, Rule::kAdamW, ways_of(Home::kHost, false)), sliced(group, Rule::kAdamW, ways_of(home, true));
      for (int step = 0; step < 2; ++step) {  // the first pass of an attached optimizer is an ordinary one
        train(whole, step);
        train(sliced, step);
        for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)})
          expect_equal(sliced.model->gradients().norm(p, sliced.stream()), whole.model->gradients().norm(p), "norm");
      }
    });
}

ddp_ranks_case(run_on_gpus, steps_and_averages_after_a_failure_change_nothing, 2) {
  Training world(group, Rule::kAdamW, ways_of(Home::kGpu, false));
  optim::Ema ema(world.model, {0.5});
  train(world, 0);
  ema.update(world.stream());
  train(world, 1);
  const std::string before = world.bytes(), state = world.state();
  const auto averages = world.read(ema.state_tensors()[0].tensor);
  world.pass(rank, 2);
  group.barrier();
  // The group breaks between the call of a step and the work that it enqueued.
  fake_gpu::pause(world.stream());
  break_group(group);
  world.optimizer->prepare_blocks();
  for (size_t k = 0; k < world.size(); ++k) world.optimizer->update_block(static_cast<int32_t>(k), 0, world.count(k));
  world.optimizer->flush(world.stream());
  ema.update(world.stream());
  fake_gpu::resume(world.stream());
  expect(world.bytes() == before, "no value has changed");
  expect(world.state() == state, "no state has changed");
  expect(world.read(ema.state_tensors()[0].tensor) == averages, "no average has changed");
}

ddp_case(after_the_second_pass_nothing_is_allocated_and_nobody_is_waited_for) {
  for (const auto& [shard, in_backward] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}})
    on_two_gpus([s = shard, b = in_backward](group::Group& group, int) {
      Training world(group, Rule::kAdamW, ways_of(Home::kGpu, s, b));
      for (int step = 0; step < 2; ++step) train(world, step);
      begin_log(group);
      for (int step = 0; step < 3; ++step) {
        world.reduce();
        world.step();
      }
      group.barrier();
      expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
      expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits");
      group.barrier();
    });
}
