// SPDX-License-Identifier: Apache-2.0
// Parameters that are larger than a bucket: split over several, they get the bits of one bucket, in every way of making a
// step; a piece is sent as soon as its range is marked; and errors, reports and checkpoints do not depend on pieces.

#include "conformance/hook_world.hpp"
#include "conformance/step_bits.hpp"
#include "support/check.hpp"

constexpr int kSteps = 4;
constexpr int64_t kSplit = 60'000, kInOneBucket = 1 << 24;
constexpr int32_t kLarge = 3;  // split into pieces by kSplit, in F32 and in 16 bits
const std::vector<int64_t> kSplitShapes = {900, 64, 5000, 70'001, 7, 33'000, 1024};

Ways ways_with(int64_t bucket_bytes) {
  Ways ways;
  ways.shapes = kSplitShapes;
  ways.bucket_bytes = bucket_bytes;
  return ways;
}

size_t buckets_of(const Training& world) {
  ddp_model_stats stats{};
  world.model->passes().meter().fill(stats);
  return static_cast<size_t>(stats.buckets);
}

BitRow split_row(const char* name, const std::vector<int>& sizes, const Change& change,
                 const std::vector<Rule>& rules = {Rule::kAdamW}) {
  const auto look = [](const Training& world) {
    const bool is_split = world.ways.bucket_bytes == kSplit && !world.ways.hook.copies();
    expect((buckets_of(world) > 5) == is_split, "parameters are split, or not");
  };
  return {.name = name,
          .sizes = sizes,
          .rules = rules,
          .change = [change](Ways& ways) { ways = ways_with(kSplit), change(ways); },
          .reference = [](Ways& ways) { ways.bucket_bytes = kInOneBucket; },
          .training = {.slow = kLarge, .unused = {kLarge}, .look = look}};
}
/// A hook may need the shape of a gradient: it gets whole ones.
BitRow hook_row() {
  BitRow row = split_row("hooks see whole gradients", {2}, [](Ways& ways) { ways.hook = callback(average); });
  row.reference = [](Ways& ways) { ways.hook = {}; };
  row.mask = 0;
  return row;
}

/// The split parameters by three threads, in ranges that do not end with the pieces.
void mark_by_threads(Training& world, int) {
  constexpr int64_t kEach = 1001;
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (const int32_t p : {kLarge, 5})
        for (int64_t at = t * kEach; at < kSplitShapes[static_cast<size_t>(p)]; at += 3 * kEach)
          world.model->pass().mark_range_ready(p, at, std::min(kEach, kSplitShapes[static_cast<size_t>(p)] - at));
    });
  for (const int32_t p : {0, 1, 2, 4, 6}) world.model->pass().mark_ready(p);
  for (std::thread& thread : threads) thread.join();
}
BitRow threads_row() {
  BitRow row = split_row("ranges from several threads complete each piece once", {2},
                         [](Ways& ways) { ways.progress = DDP_PROGRESS_THREAD; }, {Rule::kMomentum});
  row.reference = [](Ways&) {};
  row.mask = 0;
  row.training.mark = mark_by_threads;
  row.training.unused = {};
  return row;
}

ddp_bit_rows(threads_row(),
             split_row("every way has the bits of one bucket", {1, 2, 3}, [](Ways&) {}, {Rule::kMomentum, Rule::kAdamW}),
             split_row("private gradients and clipping", {1, 2, 3},
                       [](Ways& ways) {
                         ways.owned_grads = false, ways.values_in_group = true;
                         ways.max_norm = 3, ways.clip_value = 0.01;
                       }),
             split_row("16 bits with master weights", {1, 2, 3},
                       [](Ways& ways) {
                         ways.dtype = DDP_BF16, ways.master_weights = true;
                         ways.progress = DDP_PROGRESS_THREAD;
                       }),
             // Each parameter with its state as one block, though it is sent in pieces.
             split_row("a rule of whole tensors gets them", {1, 2, 3},
                       [](Ways& ways) { ways.custom = ways.whole_tensors = true; }, {Rule::kLion}),
             hook_row());

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
  model.pass().mark_range_ready(kLarge, 65'000, kSplitShapes[kLarge] - 65'000);
  model.pass().mark_range_ready(kLarge, kTail.first - 10, 65'000 - kTail.first + 10);
  const auto mean = [](int64_t i) {
    return static_cast<float>((static_cast<double>(static_cast<float>(Training::gradient(0, 0, kLarge, i))) +
                               static_cast<double>(static_cast<float>(Training::gradient(1, 0, kLarge, i)))) /
                              2);
  };
  const auto is_reduced = [&](int64_t i) { return peek(grad + i) == mean(i); };
  const int64_t end = os::now_ns() + 20'000'000'000;
  const auto done = [&] { return is_reduced(kTail.first) && is_reduced(kSplitShapes[kLarge] - 1); };
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
        set_way(ways, way);
        ways.unused = unused;
        Training world(group, Rule::kAdamW, ways), other(group, Rule::kAdamW, ways);
        model::Model& model = *world.model;
        expect_no_trace(world, other, [&](int step) {
          world.fill(rank, step + 10);
          model.begin_backward(DDP_PASS_REDUCE);
          for (const int32_t p : {6, 5, 4}) model.pass().mark_ready(p);
          const int64_t missing = rank == 1 ? 20'000 : 0;  // of the first pieces
          model.pass().mark_range_ready(kLarge, missing, kSplitShapes[kLarge] - missing);
          for (const int32_t p : {2, 1, 0}) model.pass().mark_ready(p);
          expect_error(DDP_ERROR_INVALID_STATE, [&] { model.end_backward(); },
                       {"rank 1 did not mark \"p3 (elements 0 to 19999)\""});
        });
      });
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
      for (std::vector<float>& each : elsewhere) each.resize(static_cast<size_t>(kSplitShapes[kLarge]));
      for (int step = 0; step < kSteps; ++step) {
        std::vector<float>& now = elsewhere[step % 2];
        const Tensor moved = flat_tensor(now.data(), DDP_F32, static_cast<int64_t>(now.size()));
        world.model->gradients().set(kLarge, &moved);
        for (Training* each : {&world, &other}) each->train(rank, step);
        expect(world.bytes() == other.bytes(), "the bits");
      }
    });
}

/// A save of ranks that own pieces of pieces gives the file of one rank with one bucket, and the other way round.
ddp_case_on(kThreePaths, checkpoints_know_nothing_of_pieces) {
  std::vector<FileWay> saved;
  for (const int size : {1, 2, 4})
    for (const int64_t bucket_bytes : {kInOneBucket, kSplit}) {
      Ways ways = ways_with(bucket_bytes);
      ways.dtype = DDP_BF16;
      ways.master_weights = true;
      ways.shard = size > 1;
      saved.push_back({size, ways});
    }
  expect(expect_one_file(path, saved, {saved[4], saved[5]}).size() > 1'000'000, "the file is there");
}
