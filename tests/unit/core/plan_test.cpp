// SPDX-License-Identifier: Apache-2.0
// The bucket plan: small models exhaustively, large ones at random, held to the rule in plan.hpp.
#include "core/plan.hpp"

#include "core/dtype.hpp"
#include "support/check.hpp"

int64_t bytes_of(const PlannedBucket& bucket) {
  int64_t sum = 0;
  for (const PlannedPiece& piece : bucket.pieces) sum += piece.count;
  return sum * dtype_size(bucket.dtype);
}

PlanLimits limits_of(int64_t first, int64_t limit, int32_t ranks = 1) { return {first, limit, limit, ranks}; }

/// What every plan promises.
void expect_rule(const std::vector<PlanItem>& items, int64_t first, int64_t limit) {
  const Plan plan = plan_buckets(items, limits_of(first, limit), Oversized::kSplit);
  std::vector<int64_t> left;  // of each parameter, the elements that no bucket had yet
  for (const PlanItem& item : items) left.push_back(item.count);
  std::set<int32_t> seen;
  std::pair<int32_t, int64_t> last_complete(INT32_MAX, 0);
  std::set<ddp_dtype> begun;
  for (const PlannedBucket& bucket : plan) {
    expect(!bucket.pieces.empty(), "no bucket is empty");
    int64_t end = 0;
    for (size_t i = 0; i < bucket.pieces.size(); ++i) {
      const PlannedPiece& piece = bucket.pieces[i];
      const PlanItem& item = items[static_cast<size_t>(piece.parameter)];
      expect(item.dtype == bucket.dtype, "one dtype in a bucket");
      const bool is_new = seen.insert(piece.parameter).second;
      if (piece.count < item.count) {
        expect(bucket.pieces.size() == 1, "a piece of a parameter is alone");
        expect(item.count * dtype_size(item.dtype) > limit, "nothing smaller than a bucket is split");
        expect(piece.first % kPieceUnit == 0 && piece.count > 0, "pieces begin at blocks and are not empty");
        expect(bytes_of(bucket) <= std::max(limit, kLeastPieceBytes), "a piece keeps the limit");
      } else {
        expect(is_new, "a whole parameter is in one bucket");
        expect(item.count * dtype_size(item.dtype) <= std::max(limit, kLeastPieceBytes), "a larger one is split");
      }
      int64_t& of_this = left[static_cast<size_t>(piece.parameter)];
      expect_equal(piece.first + piece.count, of_this, "the last elements come first, and each once");
      of_this = piece.first;
      expect(i == 0 || piece.parameter < bucket.pieces[i - 1].parameter, "reverse registration order");
      expect(piece.offset >= end && piece.offset * dtype_size(item.dtype) % 64 == 0, "offsets are disjoint and aligned");
      end = piece.offset + piece.count;
    }
    expect(bucket.count >= end, "the bucket holds its pieces");
    const PlannedPiece& lowest = bucket.pieces.back();
    const std::pair<int32_t, int64_t> complete(lowest.parameter, lowest.first);
    expect(complete < last_complete, "buckets come in the order in which they are complete");
    last_complete = complete;
    const int64_t most = begun.insert(bucket.dtype).second ? std::min(first, limit) : limit;
    expect(bucket.pieces.size() == 1 || bytes_of(bucket) <= std::max(first, most), "a limit is kept");
  }
  expect_equal(seen.size(), items.size(), "parameters in the plan");
  expect(std::all_of(left.begin(), left.end(), [](int64_t each) { return each == 0; }), "all elements are in the plan");
  for (const PlannedBucket& bucket : plan_buckets(items, limits_of(first, limit), Oversized::kWhole))
    for (const PlannedPiece& piece : bucket.pieces)
      expect(piece.first == 0 && piece.count == items[static_cast<size_t>(piece.parameter)].count, "nothing is split");
}

std::vector<int64_t> mebibytes_of(const Plan& plan) {
  std::vector<int64_t> all;
  for (const PlannedBucket& bucket : plan) all.push_back(bytes_of(bucket) >> 20);
  return all;
}

ddp_case(what_is_expected_last_travels_alone) {
  const auto plan_of = [](std::vector<int64_t> mebibytes, bool on_gpu = false) {
    std::vector<PlanItem> items;
    for (const int64_t each : mebibytes) items.push_back({each << 18, DDP_F32, on_gpu});
    return mebibytes_of(plan_buckets(items, limits_of(1 << 20, 25 << 20), Oversized::kSplit));
  };
  using Sizes = std::vector<int64_t>;
  expect(plan_of(Sizes(12, 4)) == Sizes{4, 24, 16, 4}, "twelve layers");
  expect(plan_of({8, 8}) == Sizes{8, 8}, "one layer is the first bucket, one the last");
  expect(plan_of({20, 1, 1, 1, 1, 1}) == Sizes{1, 4, 20}, "the last parameter is large");
  expect(plan_of({2, 2, 1}) == Sizes{1, 4}, "a short bucket stays");
  expect(plan_of(Sizes(12, 4), true) == Sizes{4, 24, 20}, "on a GPU nothing is cut");
  const std::vector<PlanItem> small(40, PlanItem{1 << 16, DDP_F32});
  expect(mebibytes_of(plan_buckets(small, limits_of(1 << 20, 25 << 20), Oversized::kSplit)) == Sizes{1, 8, 1},
         "as many as the first bucket would hold");
}

ddp_case(small_models_keep_the_rule) {
  constexpr int64_t kCounts[] = {0, 1, 16, 17, 100};
  for (size_t n = 0; n <= 4; ++n) {
    std::vector<size_t> pick(n, 0);
    for (bool more = true; more;) {
      std::vector<PlanItem> items;
      for (const size_t p : pick) items.push_back({kCounts[p % 5], p < 5 ? DDP_F32 : DDP_F16});
      for (const int64_t first : {1, 64, 200})
        for (const int64_t limit : {1, 128, 100000}) expect_rule(items, first, limit);
      more = false;
      for (size_t& p : pick) {
        if (++p < 10) {
          more = true;
          break;
        }
        p = 0;
      }
    }
  }
}

ddp_case(large_models_keep_the_rule) {
  std::mt19937 random(20240611);
  for (int round = 0; round < 200; ++round) {
    std::vector<PlanItem> items(random() % 3000);
    for (PlanItem& item : items)
      item = {static_cast<int64_t>(random() % (random() % 10 == 0 ? 200'000 : 5000)), random() % 4 == 0 ? DDP_F64 : DDP_F32};
    expect_rule(items, 1 << (random() % 20), 1 << (random() % 22));
  }
}

ddp_case(the_defaults_start_small_and_go_on_large) {
  const std::vector<PlanItem> items(100, PlanItem{1 << 18, DDP_F32});  // 100 times 1 MiB
  const Plan plan = plan_buckets(items, limits_of(1 << 20, 25 << 20), Oversized::kSplit);
  expect_equal(plan.size(), size_t{6}, "buckets");
  expect_equal(plan[0].pieces.size(), size_t{1}, "parameters in the first");
  expect_equal(plan[1].pieces.size(), size_t{25}, "parameters in the second");
  expect_equal(plan[0].pieces[0].parameter, 99, "the first gradient of backward");
  expect_equal(plan[5].pieces.size(), size_t{1}, "parameters in the last");
}

/// GPT-2's: an embedding of 154 MB is the last gradient of backward.
ddp_case(an_embedding_is_split_evenly) {
  const Plan plan = plan_buckets({{50257 * 768, DDP_F32}, {768, DDP_F32}}, limits_of(1 << 20, 25 << 20), Oversized::kSplit);
  expect_equal(plan.size(), size_t{7}, "buckets");
  expect_equal(plan[0].pieces[0].parameter, 1, "the small one comes first");
  int64_t next = 50257 * 768;
  for (size_t b = 1; b < plan.size(); ++b) {
    const PlannedPiece& piece = plan[b].pieces.front();
    expect_equal(piece.first + piece.count, next, "the last elements first");
    expect(piece.count >= 6'300'000 && bytes_of(plan[b]) <= 25 << 20, "pieces of about the same size");
    next = piece.first;
  }
  const PlanPlaces places(plan, 2);
  expect_equal(places.of(0).size(), size_t{6}, "places of the embedding");
  expect_equal(places.of(1).size(), size_t{1}, "places of the small one");
  expect(places.of(0)[0].bucket == 1 && places.of(0)[5].bucket == 6 && places.of(1)[0].bucket == 0,
         "in the order of buckets");
}

/// What the program does not say follows from the size of the model.
ddp_case(buckets_are_a_sixteenth_of_a_model) {
  const auto limits = [](int64_t mebibytes, Oversized oversized = Oversized::kSplit, int64_t given = 0) {
    const std::vector<PlanItem> items(static_cast<size_t>(mebibytes), PlanItem{1 << 18, DDP_F32});
    return ddp::limits_of(1 << 20, given, 3, items, oversized);
  };
  expect_equal(limits(8).host_bytes, int64_t{4} << 20, "of a small model");
  expect_equal(limits(160).host_bytes, int64_t{10} << 20, "of a larger one");
  expect_equal(limits(1'000).host_bytes, int64_t{25} << 20, "of a large one");
  expect_equal(limits(8, Oversized::kWhole).host_bytes, int64_t{25} << 20, "behind a hook");
  expect(limits(8).gpu_bytes == int64_t{64} << 20 && limits(8).ranks == 3 && limits(8).first_bytes == 1 << 20, "the rest");
  const PlanLimits given = limits(8, Oversized::kSplit, 5'000);
  expect(given.host_bytes == 5'000 && given.gpu_bytes == 5'000 && given.host_piece_bytes == 0, "what the program says");
  const std::vector<PlanItem> on_gpu(1'000, PlanItem{1 << 18, DDP_F32, true});
  expect_equal(ddp::limits_of(1, 0, 1, on_gpu, Oversized::kSplit).host_bytes, int64_t{4} << 20,
               "gradients on a GPU do not count");
}

ddp_case(a_parameter_stays_whole_up_to_a_piece) {
  const std::vector<PlanItem> items = {{20 << 18, DDP_F32}, {1 << 18, DDP_F32}, {27 << 18, DDP_F32}};
  const Plan plan = plan_buckets(items, ddp::limits_of(1 << 20, 0, 1, items, Oversized::kSplit), Oversized::kSplit);
  std::vector<int64_t> bytes;
  for (const PlannedBucket& bucket : plan) bytes.push_back(bytes_of(bucket));
  const int64_t half = (int64_t{27} << 20) / 2;
  expect(bytes == std::vector<int64_t>{half, half, 1 << 20, 20 << 20}, "27 MiB are split in two, 20 are not");
}

/// Less than the least piece: limits this small are there to put each parameter in a bucket of its own.
ddp_case(small_limits_do_not_make_dust) {
  const Plan plan = plan_buckets({{40'000, DDP_F32}, {16'384, DDP_F32}}, limits_of(1, 1), Oversized::kSplit);
  expect_equal(plan.size(), size_t{4}, "buckets: one whole parameter, and three pieces of 64 KiB at most");
}

ddp_case(the_hash_tells_plans_apart) {
  const auto plan_of = [](int64_t limit, Oversized oversized) {
    return plan_buckets(std::vector<PlanItem>(10, PlanItem{20'000, DDP_F32}), limits_of(400, limit), oversized);
  };
  const Plan plan = plan_of(1000, Oversized::kSplit);
  expect(hash_plan(plan, 1) == hash_plan(plan_of(1000, Oversized::kSplit), 1), "the same plan");
  expect(hash_plan(plan, 1) != hash_plan(plan, 2), "another model");
  expect(hash_plan(plan, 1) != hash_plan(plan_of(1 << 20, Oversized::kSplit), 1), "other limits");
  expect(hash_plan(plan, 1) != hash_plan(plan_of(1000, Oversized::kWhole), 1), "whole or split");
}
