// SPDX-License-Identifier: Apache-2.0
// Parameters that are larger than a bucket: split over several, they get the bits of one bucket, in every way of making a
// step; a piece is sent as soon as its range is marked; and errors, reports and checkpoints do not depend on pieces.

#include "checkpoint/state.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int kSteps = 4;
constexpr int64_t kSplit = 60'000, kInOneBucket = 1 << 24;
constexpr int32_t kLarge = 3;  // split into pieces by kSplit, in F32 and in 16 bits
const std::vector<int64_t> kShapes = {900, 64, 5000, 70'001, 7, 33'000, 1024};

Ways ways_with(int64_t bucket_bytes) {
  Ways ways;
  ways.shapes = kShapes;
  ways.bucket_bytes = bucket_bytes;
  return ways;
}

size_t buckets_of(const Training& world) {
  ddp_model_stats stats{};
  world.model->passes().meter().fill(stats);
  return static_cast<size_t>(stats.buckets);
}

std::string train(group::Group& group, Rule rule, const Ways& ways) {
  Training world(group, rule, ways);
  expect((buckets_of(world) > 5) == (ways.bucket_bytes == kSplit && !ways.hook.copies()), "parameters are split, or not");
  world.optimizer->set_parameter_options(kLarge, 0.2, 0.5);
  for (int step = 0; step < kSteps; ++step) {
    world.optimizer->set_rate(0.05 / (1 + step));
    world.pass(group.rank(), step, step == 2 ? std::set<int32_t>{kLarge} : std::set<int32_t>{});
    world.optimizer->step();
  }
  expect_same_everywhere(group, world.bytes(), "the model");
  return world.bytes();
}

void expect_the_bits_of_one_bucket(Path path, const Ways& base, const std::vector<Rule>& rules) {
  for (const int size : {1, 2, 3})
    run_on(path, size, [&](group::Group& group, int) {
      for (const Rule rule : rules) {
        Ways whole = base;
        whole.bucket_bytes = kInOneBucket;
        const std::string wanted = train(group, rule, whole);
        for (int way = 0; way < 4; ++way) {
          Ways split = base;
          split.bucket_bytes = kSplit;
          split.shard = (way & 1) != 0;
          split.in_backward = (way & 2) != 0;
          expect(train(group, rule, split) == wanted, "the bits of rule " + std::to_string(static_cast<int>(rule)) +
                                                          ", way " + std::to_string(way) + ", size " + std::to_string(size));
        }
      }
    });
}

ddp_case_on(kThreePaths, every_way_gives_the_bits_of_one_bucket) {
  expect_the_bits_of_one_bucket(path, ways_with(kSplit), {Rule::kMomentum, Rule::kAdamW});
}

ddp_case_on(kThreePaths, private_gradients_and_clipping_do_too) {
  Ways ways = ways_with(kSplit);
  ways.owned_grads = false;
  ways.values_in_group = true;
  ways.max_norm = 3;
  ways.clip_value = 0.01;
  expect_the_bits_of_one_bucket(path, ways, {Rule::kAdamW});
}

ddp_case_on(kThreePaths, sixteen_bits_with_master_weights_do_too) {
  Ways ways = ways_with(kSplit);
  ways.dtype = DDP_BF16;
  ways.master_weights = true;
  ways.progress = DDP_PROGRESS_THREAD;
  expect_the_bits_of_one_bucket(path, ways, {Rule::kAdamW});
}

/// Each parameter with its state as one block, though it is sent in pieces.
ddp_case_on(kThreePaths, a_rule_of_whole_tensors_gets_them) {
  Ways ways = ways_with(kSplit);
  ways.custom = true;
  ways.whole_tensors = true;
  expect_the_bits_of_one_bucket(path, ways, {Rule::kLion});
}

/// A hook may need the shape of a gradient: it gets whole ones.
ddp_ranks_case_on(kThreePaths, run_on, hooks_see_whole_gradients, 2) {
  Ways plain = ways_with(kSplit), hooked = plain;
  hooked.hook = parts::Hook{parts::Hook::Kind::kCallback, "mean", cpu::ReduceRule::kAsItIs,
                            [](parts::HookBucket& bucket) { bucket.all_reduce(bucket.contents(), bucket.reduce()); }};
  Training world(group, Rule::kSgd, hooked), other(group, Rule::kSgd, plain);
  expect(buckets_of(world) < buckets_of(other), "nothing is split");
  expect(train(group, Rule::kAdamW, hooked) == train(group, Rule::kAdamW, plain), "the bits");
}

const PlannedPiece kTail{kLarge, 57'344, 70'001 - 57'344, 0};  // of 5 pieces of 14,336 elements

/// A look at memory that others may write meanwhile.
__attribute__((no_sanitize("thread"), noinline)) float peek(const volatile float* at) { return *at; }

/// The rows of a stacked array: the last ones are reduced while the first ones are still to come.
ddp_ranks_case_on(kThreePaths, run_on, a_piece_travels_as_soon_as_it_is_marked, 2) {
  Ways ways = ways_with(kSplit);
  ways.progress = DDP_PROGRESS_THREAD;
  Training world(group, Rule::kSgd, ways), other(group, Rule::kSgd, ways);
  model::Model& model = *world.model;
  expect_contains(model.pass().describe_plan(), " p3[57344:70001]\n");
  world.fill(rank, 0);
  const auto* const grad = reinterpret_cast<const float*>(model.table().parameter(kLarge).grad.data);
  model.begin_backward(DDP_PASS_REDUCE);
  for (const int32_t p : {6, 5, 4}) model.pass().mark_ready(p);
  // In two parts, of which the second begins in the piece before.
  model.pass().mark_range_ready(kLarge, 65'000, kShapes[kLarge] - 65'000);
  model.pass().mark_range_ready(kLarge, kTail.first - 10, 65'000 - kTail.first + 10);
  const auto mean = [](int64_t i) {
    return static_cast<float>((static_cast<double>(static_cast<float>(Training::gradient(0, 0, kLarge, i))) +
                               static_cast<double>(static_cast<float>(Training::gradient(1, 0, kLarge, i)))) /
                              2);
  };
  const auto is_reduced = [&](int64_t i) { return peek(grad + i) == mean(i); };
  const int64_t end = os::now_ns() + 20'000'000'000;
  const auto done = [&] { return is_reduced(kTail.first) && is_reduced(kShapes[kLarge] - 1); };
  while (!done() && os::now_ns() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect(done(), "the last piece is reduced before the others are marked");
  expect(!is_reduced(kTail.first - 1), "the piece before it is not");
  model.pass().mark_range_ready(kLarge, 0, kTail.first - 10);
  for (const int32_t p : {2, 1, 0}) model.pass().mark_ready(p);
  model.end_backward();
  world.optimizer->step();
  other.train(rank, 0);
  expect(world.bytes() == other.bytes(), "the bits");
}

/// Some pieces are reduced, and with in_backward stepped, when it turns out that one is missing.
ddp_case_on(kThreePaths, a_missing_piece_voids_the_pass) {
  for (int way = 0; way < 4; ++way)
    for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW})
      run_on(path, 3, [way, unused](group::Group& group, int rank) {
        Ways ways = ways_with(kSplit);
        ways.shard = (way & 1) != 0;
        ways.in_backward = (way & 2) != 0;
        ways.unused = unused;
        Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, ways);
        model::Model& model = *world.model;
        for (int step = 0; step < 5; ++step) {
          if (step == 1 || step == 3) {
            const std::string before = world.bytes();
            world.fill(rank, step + 10);
            model.begin_backward(DDP_PASS_REDUCE);
            for (const int32_t p : {6, 5, 4}) model.pass().mark_ready(p);
            const int64_t missing = rank == 1 ? 20'000 : 0;  // of the first pieces
            model.pass().mark_range_ready(kLarge, missing, kShapes[kLarge] - missing);
            for (const int32_t p : {2, 1, 0}) model.pass().mark_ready(p);
            expect_error(DDP_ERROR_INVALID_STATE, [&] { model.end_backward(); },
                         {"rank 1 did not mark \"p3 (elements 0 to 19999)\""});
            expect(world.bytes() == before, "parameters are as before");
            continue;
          }
          for (Training* each : {&world, &other}) each->train(rank, step);
          expect(world.bytes() == other.bytes(), "and so is the optimizer's state");
        }
      });
}

ddp_ranks_case_on(kThreePaths, run_on, ranges_from_several_threads_complete_each_piece_once, 2) {
  Ways ways = ways_with(kSplit);
  ways.progress = DDP_PROGRESS_THREAD;
  Training world(group, Rule::kMomentum, ways), other(group, Rule::kMomentum, ways);
  for (int step = 0; step < 4; ++step) {
    world.fill(rank, step);
    world.model->begin_backward(DDP_PASS_REDUCE);
    constexpr int64_t kEach = 1001;
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (const int32_t p : {kLarge, 5})
          for (int64_t at = t * kEach; at < kShapes[static_cast<size_t>(p)]; at += 3 * kEach)
            world.model->pass().mark_range_ready(p, at, std::min(kEach, kShapes[static_cast<size_t>(p)] - at));
      });
    for (const int32_t p : {0, 1, 2, 4, 6}) world.model->pass().mark_ready(p);
    for (std::thread& thread : threads) thread.join();
    world.model->end_backward();
    world.optimizer->step();
    other.train(rank, step);
    expect(world.bytes() == other.bytes(), "the bits");
  }
}

/// A program that gives other memory for a gradient in each pass.
ddp_case_on(kThreePaths, gradients_may_move) {
  for (const bool shard : {false, true})
    run_on(path, 2, [shard](group::Group& group, int rank) {
      Ways ways = ways_with(kSplit);
      ways.owned_grads = false;
      ways.shard = ways.in_backward = shard;
      Training world(group, Rule::kMomentum, ways), other(group, Rule::kMomentum, ways);
      std::vector<float> elsewhere[2];
      for (std::vector<float>& each : elsewhere) each.resize(static_cast<size_t>(kShapes[kLarge]));
      for (int step = 0; step < kSteps; ++step) {
        std::vector<float>& now = elsewhere[step % 2];
        const Tensor moved = flat_tensor(now.data(), DDP_F32, static_cast<int64_t>(now.size()));
        world.model->gradients().set(kLarge, &moved);
        for (Training* each : {&world, &other}) each->train(rank, step);
        expect(world.bytes() == other.bytes(), "the bits");
      }
    });
}

/// What is saved by ranks that own pieces of pieces is the file of one rank with one bucket, and the other way round.
ddp_case_on(kThreePaths, checkpoints_know_nothing_of_pieces) {
  const Folder folder;
  const auto file = [&](int size, int64_t bucket_bytes) {
    return folder.path() + "/" + std::to_string(size) + "-" + std::to_string(bucket_bytes);
  };
  const auto world_of = [](group::Group& group, int64_t bucket_bytes) {
    Ways ways = ways_with(bucket_bytes);
    ways.dtype = DDP_BF16;
    ways.master_weights = true;
    ways.shard = group.size() > 1;
    return std::make_unique<Training>(group, Rule::kAdamW, ways);
  };
  const auto train_on = [](Training& world, int first, int end) {
    for (int step = first; step < end; ++step) {
      world.train(0, step);
    }
  };
  for (const int size : {1, 2, 4})
    for (const int64_t bucket_bytes : {kSplit, kInOneBucket})
      run_on(path, size, [&](group::Group& group, int) {
        const auto world = world_of(group, bucket_bytes);
        train_on(*world, 0, 3);
        checkpoint::save_file("save", {*world->model, world->optimizer.get()}, {1, 3}, file(size, bucket_bytes),
                              std::nullopt);
      });
  const std::string wanted = read_file(file(1, kInOneBucket));
  expect(wanted.size() > 1'000'000, "the file is there");
  for (const int size : {1, 2, 4})
    for (const int64_t bucket_bytes : {kSplit, kInOneBucket})
      expect(read_file(file(size, bucket_bytes)) == wanted, "the same file, whoever wrote it");
  for (const int64_t bucket_bytes : {kSplit, kInOneBucket})
    run_on(path, 4, [&](group::Group& group, int) {
      const auto world = world_of(group, bucket_bytes), straight = world_of(group, kInOneBucket);
      (void)checkpoint::load_file("load", {*world->model, world->optimizer.get()}, file(1, kInOneBucket), std::nullopt);
      train_on(*world, 3, 5);
      train_on(*straight, 0, 5);
      expect(world->bytes() == straight->bytes(), "the bits of going on without a file");
    });
}
