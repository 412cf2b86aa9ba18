// SPDX-License-Identifier: Apache-2.0
// Slices: every element has one owner, cuts are where the rule puts them, and no rank gets much more than its part.
#include "core/slices.hpp"

#include "support/check.hpp"

void expect_rule(const std::vector<int64_t>& sizes, int32_t ranks) {
  std::vector<PlanItem> items;
  for (const int64_t size : sizes) items.push_back(PlanItem{size, DDP_F32});
  const Plan plan = plan_buckets(items, {INT64_MAX / 8, INT64_MAX / 8, INT64_MAX / 8, 1}, Oversized::kSplit);
  expect_equal(plan.size(), size_t{1}, "buckets");
  std::vector<int64_t> counts;
  for (const PlannedPiece& piece : plan[0].pieces) counts.push_back(piece.count);
  const Ownership ownership = cut_slices(plan[0], ranks);
  expect_equal(ownership.ranks(), ranks, "slices");
  size_t k = 0;
  int64_t next = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int64_t owned = 0;
    for (const OwnedSpan& span : ownership.slice(rank)) {
      while (k < counts.size() && next == counts[k]) ++k, next = 0;
      expect_equal(static_cast<size_t>(span.piece), k, "the piece that follows");
      expect_equal(span.first, next, "the element that follows");
      expect(span.count > 0 && span.first % kSliceUnit == 0, "spans are not empty and begin at a block");
      next += span.count;
      owned += span.count;
    }
    expect(owned <= plan[0].count / ranks + kSliceUnit + 16 * static_cast<int64_t>(counts.size()) + 1,
           "a slice is about a part");
  }
  while (k < counts.size() && next == counts[k]) ++k, next = 0;
  expect_equal(k, counts.size(), "all elements are owned, pieces");
}

ddp_case(every_element_has_one_owner) {
  expect_rule({1}, 3);
  expect_rule({5000}, 1);
  expect_rule({5000}, 4);
  expect_rule({1024, 1024, 1024, 1024}, 4);
  expect_rule({0, 7, 0, 3000, 0}, 2);
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> sizes(1 + random() % 20);
    for (int64_t& size : sizes) size = static_cast<int64_t>(random() % 3 == 0 ? random() % 100'000 : random() % 50);
    expect_rule(sizes, static_cast<int32_t>(1 + random() % 9));
  }
}

/// A plan of several buckets, some of them pieces of one parameter, asked by the number of a parameter.
ddp_case(a_plan_is_owned_as_its_buckets_are) {
  const std::vector<int64_t> counts = {7, 5000, 1, 1024, 3000, 64, 70'001, 20'000, 900};
  std::vector<PlanItem> items;
  for (const int64_t count : counts) items.push_back(PlanItem{count, DDP_F32});
  const Plan plan = plan_buckets(items, {8'000, 60'000, 60'000, 1}, Oversized::kSplit);
  const PlanPlaces places(plan, counts.size());
  expect(plan.size() > 2 && places.of(6).size() > 1, "several buckets, and several of one parameter");
  const PlanOwnership sharded = own_plan(plan, counts, 3, Division::kSlices);
  const PlanOwnership whole = own_plan(plan, counts, 3, Division::kNone);
  expect_equal(sharded.buckets.size(), plan.size(), "one for each bucket");
  for (size_t at = 0; at < counts.size(); ++at) {
    const auto index = static_cast<int32_t>(at);
    std::vector<int> owners(static_cast<size_t>(counts[at]), 0);
    for (int32_t rank = 0; rank < 3; ++rank) {
      int64_t in_buckets = 0;
      for (const PiecePlace& place : places.of(index)) {
        const PlannedPiece& piece = plan[static_cast<size_t>(place.bucket)].pieces[static_cast<size_t>(place.piece)];
        for (const OwnedSpan& part : sharded.buckets[static_cast<size_t>(place.bucket)].parts(rank, place.piece)) {
          in_buckets += part.count;
          const int64_t first = piece.first + part.first;
          for (int64_t i = first; i < first + part.count; ++i) ++owners[static_cast<size_t>(i)];
          const OwnedParts in_plan = sharded.parameters.parts(rank, index);
          expect(std::any_of(in_plan.begin(), in_plan.end(),
                             [&](const OwnedSpan& each) { return each.first == first && each.count == part.count; }),
                 "both say the same");
        }
      }
      expect_equal(count_of(sharded.parameters.parts(rank, index)), in_buckets, "and nothing else");
      int64_t next = 0;
      for (const OwnedSpan& part : whole.parameters.parts(rank, index)) {
        expect_equal(part.first, next, "parts follow each other");
        next += part.count;
      }
      expect_equal(next, counts[at], "not sharded: everybody owns everything");
    }
    expect(std::all_of(owners.begin(), owners.end(), [](int each) { return each == 1; }), "every element has one owner");
  }
}

/// Each parameter has one owner, and no rank has more than its even share and the largest parameter that it could not share.
ddp_case(whole_tensors_are_divided_evenly) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> counts;
    std::vector<PlanItem> items;
    for (size_t k = 1 + random() % 30; k-- > 0;)
      counts.push_back(static_cast<int64_t>(random() % (k % 7 == 0 ? 50'000 : 5000)));
    for (const int64_t count : counts) items.push_back(PlanItem{count, DDP_F32});
    const auto ranks = static_cast<int32_t>(1 + random() % 6);
    const Plan plan = plan_buckets(items, {8'000, 20'000, 20'000, 1}, Oversized::kSplit);
    const PlanOwnership owned = own_plan(plan, counts, ranks, Division::kWholeTensors);
    int64_t all = 0, largest = 0;
    for (size_t index = 0; index < counts.size(); ++index) {
      all += counts[index];
      largest = std::max(largest, counts[index]);
      int owners = 0;
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const OwnedParts theirs = owned.parameters.parts(rank, static_cast<int32_t>(index));
        if (theirs.empty()) continue;
        ++owners;
        expect_equal(count_of(theirs), counts[index], "the whole parameter");
      }
      expect_equal(owners, counts[index] > 0 ? 1 : 0, "owners of a parameter");
    }
    expect(owned.parameters.most() <= all / ranks + largest, "divided evenly");
    int64_t in_buckets = 0;
    for (const Ownership& bucket : owned.buckets)
      for (int32_t rank = 0; rank < ranks; ++rank) in_buckets += bucket.count(rank);
    expect_equal(in_buckets, all, "elements in buckets");
  }
}
