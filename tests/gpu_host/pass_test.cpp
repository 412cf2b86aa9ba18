// SPDX-License-Identifier: Apache-2.0
// Passes of models whose gradients are on a GPU, or some of them. Their meaning is that of the CPU; here are the properties
// that are different: streams, the host that does not wait, races that the fake would find.

#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

/// kMixed: some owned, some in host memory.
enum class Memory { kOwned, kPrivate, kMixed };

Ways ways_of(Memory memory) {
  Ways ways;
  ways.home = memory == Memory::kMixed ? Home::kBoth : Home::kGpu;
  ways.shapes = {1, 17, 1000, 3, 9000, 128, 77, 64};
  ways.first_bucket_bytes = 4'000;
  ways.bucket_bytes = 20'000;
  ways.owned_grads = memory != Memory::kPrivate;
  ways.every_second_lent = memory == Memory::kMixed;
  ways.enqueued = true;
  ways.unused = DDP_UNUSED_ERROR;
  ways.is_stepped = false;
  return ways;
}

using Weights = std::vector<double>;  // of each rank

/// Of a parameter; sums are exact.
void expect_sum(const Training& world, size_t p, int step, const Weights& weights, double divisor, const std::string& what) {
  const std::vector<std::byte> bytes = world.read(world.grad(p));
  for (int64_t i = 0; i < world.count(p); ++i) {
    double wanted = 0;
    for (size_t rank = 0; rank < weights.size(); ++rank)
      wanted += weights[rank] * Training::whole_gradient(static_cast<int>(rank), step, p, i) / divisor;
    const double got = get_element(DDP_F32, bytes.data(), static_cast<size_t>(i));
    if (!(std::abs(got - wanted) <= 1e-6 * std::abs(wanted)))
      expect_equal(got, wanted, what + ": element " + std::to_string(i) + " of parameter " + std::to_string(p));
  }
}
void expect_mean(const Training& world, int step, const Weights& weights, double divisor, const std::string& what) {
  for (size_t p = 0; p < world.size(); ++p) expect_sum(world, p, step, weights, divisor, what);
}

std::vector<int32_t> order_of(const Training& world, int pass) {
  std::vector<int32_t> order = world.numbers;
  std::mt19937 random(static_cast<unsigned>(world.group.rank() * 131 + pass));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

ddp_case(every_memory_order_and_stream_gives_the_mean) {
  for (const int size : {1, 2, 3, 4})
    for (const Memory memory : {Memory::kOwned, Memory::kPrivate, Memory::kMixed}) {
      const std::string what = "size " + std::to_string(size) + ", memory " + std::to_string(static_cast<int>(memory));
      const FakeGpus gpus(static_cast<uint64_t>(size) * 17 + 3);
      run_gpu_groups(size, [&](group::Group& group, int rank) {
        Training world(group, ways_of(memory));
        const GpuStream other(rank);
        for (int pass = 0; pass < 4; ++pass) {
          world.fill(rank, pass);
          world.model->begin_backward(DDP_PASS_REDUCE);
          for (const int32_t p : order_of(world, pass)) world.mark_one(p, p % 2 == 0 ? world.stream() : other.get());
          world.model->end_backward(world.stream());
          expect_mean(world, pass, Weights(static_cast<size_t>(size), 1), size, what + ", pass " + std::to_string(pass));
          other.synchronize();  // the test writes its inputs behind the curtain
        }
        group.barrier();
      });
      FakeGpus::expect_correct(what);
      FakeGpus::expect_nothing_left();
    }
}

ddp_case(the_host_waits_for_no_device_and_allocates_nothing) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      Training world(group, ways_of(memory));
      world.pass(rank, 0);
      world.synchronize();
      world.fill(rank, 1);
      expect_no_wait(group, [&] { world.reduce(); });
      expect_mean(world, 1, {1, 1}, 2, "after the pause");
      group.barrier();
    });
  }
}

ddp_case(one_rank_needs_no_nccl_and_launches_nothing) {
  const FakeGpus gpus;
  fake_gpu::set_open_nccl_error("it is not there");
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    Training world(group, ways_of(Memory::kPrivate));
    world.fill(rank, 0);
    for (size_t p = 0; p < world.size(); ++p) world.enqueue(p, world.stream());
    world.model->begin_backward(DDP_PASS_REDUCE);
    fake_gpu::clear_log();
    for (const int32_t p : world.numbers) world.model->pass().mark_ready(p, world.stream());
    world.model->end_backward(world.stream());
    for (const char* const work : {"move", "copy", "copy_word", "fill", "nccl.all_reduce", "alloc"})
      expect_equal(fake_gpu::calls(work), int64_t{0}, work);
    expect_mean(world, 0, {1}, 1, "one rank");
  });
  FakeGpus::expect_clean();
}

ddp_ranks_case(run_on_gpus, a_missing_gradient_is_named_on_every_rank_and_the_group_goes_on, 3) {
  Training world(group, ways_of(Memory::kPrivate));
  const std::set<int32_t> missing = rank == 1 ? std::set<int32_t>{4} : std::set<int32_t>{};
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass(rank, 0, {}, missing); }, {"rank 1", "\"p4\""});
  world.synchronize();
  world.pass(rank, 1);
  expect_mean(world, 1, {1, 1, 1}, 3, "the pass after it");
  group.barrier();
}

/// Gradients that no pass has reduced.
void write_grads(Training& world, int step) {
  world.fill(world.group.rank(), step);
  for (size_t p = 0; p < world.size(); ++p) world.enqueue(p, world.stream());
  world.synchronize();  // the next gradients come through the same memory of the test
}

ddp_case(what_nobody_used_is_left_as_it_was) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      Ways ways = ways_of(memory);
      ways.unused = DDP_UNUSED_ALLOW;
      Training world(group, ways);
      write_grads(world, 7);
      world.pass(rank, 1, {}, rank == 0 ? std::set<int32_t>{2} : std::set<int32_t>{2, 5});
      expect(!world.model->pass().results().was_used(2) && world.model->pass().results().was_used(5), "who used what");
      Weights alone(2);
      alone[static_cast<size_t>(rank)] = 1;
      expect_sum(world, 2, 7, alone, 1, "untouched");
      expect_sum(world, 5, 1, {1, 0}, 2, "of one rank");
      group.barrier();
    });
  }
}

ddp_ranks_case(run_on_gpus, weights_and_skipped_ranks_count_as_on_the_cpu, 3) {
  Ways ways = ways_of(Memory::kOwned);
  ways.divisor = DDP_DIVISOR_WEIGHTS;
  Training world(group, ways);
  if (rank < 2) set_weight(*world.model, rank == 0 ? 1 : 3);
  rank == 2 ? skip_backward(*world.model, world.stream()) : world.pass(rank, 0);
  expect_mean(world, 0, {1, 3, 0}, 4, "the weighted mean");
  group.barrier();
}

ddp_case(a_rank_that_skips_takes_part_in_the_mean_by_the_world) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      Training world(group, ways_of(memory));
      write_grads(world, 3);
      rank == 0 ? skip_backward(*world.model, world.stream()) : world.pass(rank, 0);
      expect_mean(world, 0, {0, 1}, 2, "half of the other's");
      group.barrier();
    });
  }
}

ddp_ranks_case(run_on_gpus, sixteen_bits_on_the_wire_halve_what_travels, 2) {
  Ways ways = ways_of(Memory::kPrivate);
  ways.shapes = {4096};
  ways.hook = parts::Hook::sent_as(DDP_BF16);
  Training world(group, ways);
  world.pass(rank, 0);
  expect_mean(world, 0, {1, 1}, 2, "the mean, exact in BF16");
  expect_contains(world.model->pass().describe_plan(), "sent as BF16");
  group.barrier();
}
