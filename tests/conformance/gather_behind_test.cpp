// SPDX-License-Identifier: Apache-2.0
// Between hosts the values of a sharded step within the pass are sent after the reduction of their bucket, while gradients
// of later buckets are still to come. fused_test.cpp holds the bits.

#include "conformance/step_bits.hpp"
#include "support/check.hpp"

constexpr int32_t kFirst = 6;  // it and each later parameter are buckets of their own, in which every rank owns something

Ways in_backward() {
  Ways ways;
  ways.custom = true;  // its calls are counted
  ways.shard = true;
  ways.in_backward = true;
  ways.progress = DDP_PROGRESS_THREAD;  // it is called while this thread waits
  ways.unused = DDP_UNUSED_ERROR;
  return ways;
}

void mark(Training& world, int32_t from, int32_t to) {
  for (int32_t p = from; p-- > to;) world.model->pass().mark_ready(p);
}

/// The rule is called for a bucket while another one is incomplete on all ranks. Throws when the group breaks first.
void wait_for_calls(const Training& world, int more_than) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (world.own.calls.load() <= more_than) {
    world.model->group().health().check_usable();
    expect(std::chrono::steady_clock::now() < end, "a bucket is updated while the pass is open");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

const Paths kBetweenHosts = {Path::kGloo, Path::kHosts};

ddp_ranks_case_on(kBetweenHosts, run_on, a_bucket_is_updated_while_the_pass_is_open, 3, 4) {
  Training world(group, Rule::kMomentum, in_backward());
  const auto last = static_cast<int32_t>(world.values.size());
  for (int step = 0; step < 4; ++step) {
    world.fill(rank, step);
    const int before = world.own.calls.load();
    world.model->begin_backward(DDP_PASS_REDUCE);
    mark(world, last, kFirst);
    if (step > 0) wait_for_calls(world, before);  // the first pass is an ordinary one
    mark(world, kFirst, 0);
    world.model->end_backward();
    world.optimizer->step();
  }
  expect_same_everywhere(group, world.bytes(), "the model");
}

/// Buckets that need direct exchanges of several segments.
ddp_bit_rows({.name = "large buckets have the bits of the ordinary step",
              .paths = kBetweenHosts,
              .sizes = {4},
              .change =
                  [](Ways& ways) {
                    ways.shard = ways.in_backward = true;
                    ways.unused = DDP_UNUSED_ERROR;
                    ways.shapes = {7, 1'300'000, 700'000, 900};
                    ways.bucket_bytes = int64_t{3} << 20;
                  },
              .reference = [](Ways& ways) { set_way(ways, 0); },
              .mask = 0,
              .training = {.slow = -1}});

/// Rank 1 dies when values of the first buckets have been given.
ddp_case_on(kBetweenHosts, a_rank_that_dies_behind_a_bucket_is_named) {
  expect_death_of_rank_1(path, 4, [](group::Group& group, int rank, const Folder&) {
    Training world(group, Rule::kMomentum, in_backward());
    return expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (int step = 0; step < 10; ++step) {
        world.fill(rank, step);
        const int before = world.own.calls.load();
        world.model->begin_backward(DDP_PASS_REDUCE);
        mark(world, static_cast<int32_t>(world.values.size()), kFirst);
        if (step == 3) wait_for_calls(world, before);
        if (rank == 1 && step == 3) (void)raise(SIGKILL);
        mark(world, kFirst, 0);
        world.model->end_backward();
        world.optimizer->step();
      }
    });
  });
}
