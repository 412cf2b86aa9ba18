// SPDX-License-Identifier: Apache-2.0
// Memory for gradients and values of a model: if one rank cannot get its memory, nothing has a place on any rank, and
// the next attempt gives each tensor memory that nobody else has.

#include "model/flat_memory.hpp"
#include "support/check.hpp"
#include "support/group_world.hpp"

constexpr int64_t kCount = 1000, kTooMany = int64_t{1} << 55;  // elements
constexpr int kLacking = 1;
using Values = model::ModelMemory::Values;

/// Two parameters of a rank, each with a bucket of its own; the gradient of the second is the program's.
struct Table {
  std::vector<float> first = std::vector<float>(kCount, 3.0F), second = std::vector<float>(kCount, 5.0F);
  std::vector<float> grad = std::vector<float>(kCount);
  Parameters table;

  Table() {
    const Tensor theirs = flat_tensor(grad.data(), DDP_F32, kCount);
    table.add_parameter("first", flat_tensor(first.data(), DDP_F32, kCount), nullptr);
    table.add_parameter("second", flat_tensor(second.data(), DDP_F32, kCount), &theirs);
  }
};

/// `counts`: elements of the buckets, with padding.
Plan plan_of(std::vector<int64_t> counts) {
  Plan plan;
  for (int32_t index = 0; index < 2; ++index) {
    PlannedBucket bucket;
    bucket.pieces.push_back(PlannedPiece{index, 0, kCount, 0});
    bucket.count = counts[static_cast<size_t>(index)];
    plan.push_back(bucket);
  }
  return plan;
}

void expect_untouched(const Table& of, const std::string& when) {
  expect(of.table.parameter(0).grad.data == nullptr, when + ": a gradient has memory that was given back");
  expect(of.table.parameter(1).grad.data == reinterpret_cast<const std::byte*>(of.grad.data()), when + ": moved");
  expect(of.table.parameter(0).value.data == reinterpret_cast<const std::byte*>(of.first.data()) &&
             of.table.parameter(1).value.data == reinterpret_cast<const std::byte*>(of.second.data()),
         when + ": a value is elsewhere");
}

void fails(model::ModelMemory& memory, Table& of, const Plan& plan, Values values) {
  try {
    memory.add_missing(of.table, plan, values, nullptr);
  } catch (const Error& error) {
    return expect(error.status() == DDP_ERROR_OUT_OF_MEMORY, error.what());
  }
  expect(false, "it failed on one rank, so on all");
}

void succeeds(group::Group& group, model::ModelMemory& memory, Table& of, Values values) {
  void* const other = group.memory().alloc(kCount * sizeof(float));  // perhaps what was given back
  std::fill_n(static_cast<float*>(other), kCount, 7.0F);
  memory.add_missing(of.table, plan_of({kCount, kCount}), values, nullptr);
  const auto all_are = [](const Tensor& tensor, float wanted) {
    const auto* const data = reinterpret_cast<const float*>(tensor.data);
    return std::all_of(data, data + tensor.count, [&](float each) { return each == wanted; });
  };
  expect(all_are(of.table.parameter(0).grad, 0), "zeros, in memory that nobody else has");
  expect(all_are(of.table.parameter(0).value, 3) && all_are(of.table.parameter(1).value, 5), "the values");
  expect((of.table.parameter(0).value.data != reinterpret_cast<std::byte*>(of.first.data())) == (values == Values::kOwn),
         "where values are");
  group.memory().free(other);
}

ddp_case(nothing_stays_of_an_attempt_that_failed) {
  for (const Values values : {Values::kOfProgram, Values::kOwn})
    run_groups(2, [&](group::Group& group, int rank) {
      Table mine;
      model::ModelMemory memory(group);
      fails(memory, mine, plan_of({rank == kLacking ? kTooMany : kCount, kCount}), values);
      expect_untouched(mine, "a gradient's memory is lacking");
      if (values == Values::kOwn) {
        fails(memory, mine, plan_of({kCount, rank == kLacking ? kTooMany : kCount}), values);
        expect_untouched(mine, "a value's memory is lacking");
      }
      succeeds(group, memory, mine, values);
    });
}

/// As a recovery finds them: one has made its commit, another has not.
ddp_ranks_case(run_groups, ranks_with_and_without_memory_go_on_together, 2) {
  Table mine;
  model::ModelMemory memory(group);
  memory.add_missing(mine.table, plan_of({kCount, kCount}), Values::kOwn, nullptr);
  std::byte* const grad = mine.table.parameter(0).grad.data;
  std::byte* const value = mine.table.parameter(1).value.data;
  Table again;
  memory.add_missing(rank == 0 ? again.table : mine.table, rank == 0 ? plan_of({kCount, kCount}) : Plan(), Values::kOwn,
                     nullptr);
  expect(mine.table.parameter(0).grad.data == grad && mine.table.parameter(1).value.data == value, "what is there stays");
  if (rank == 0) expect(again.table.parameter(0).grad.data != nullptr, "what was missing is there");
}
