// SPDX-License-Identifier: Apache-2.0
// What another rank reads of a step while it is made: at every store it finds the step before, from the ledger, what is
// saved and what is live. The writer is stopped after each block, as death would stop it. All of it with arrays that are
// saved, and with two sides of them.
#include "optim/ledger.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include "optim/optimizer_state.hpp"
#include "optim/undo.hpp"
#include "support/check.hpp"

namespace ddp::test {
namespace {

constexpr int64_t kCount = 3'000;
constexpr OwnedSpan kParts[] = {{0, 0, 1'000}, {0, 2'000, 1'000}};

OwnedParts parts(int32_t) { return {kParts}; }

/// One rank, and what another one sees of its memory.
struct Rank {
  std::vector<float> value = std::vector<float>(kCount, 1.0F);
  std::vector<float> grad = std::vector<float>(kCount, 1.0F);
  Parameters table;
  std::vector<std::shared_ptr<std::byte>> shared;
  optim::OptimizerState state{1};
  optim::Undo undo;

  explicit Rank(bool two_sides) {
    const Tensor tensor = flat_tensor(grad.data(), DDP_F32, kCount);
    (void)table.add_parameter("w", flat_tensor(value.data(), DDP_F32, kCount), &tensor);
    const optim::StateMemory memory = [this](int64_t bytes) {
      shared.emplace_back(static_cast<std::byte*>(std::calloc(1, static_cast<size_t>(bytes))), std::free);
      return shared.back();
    };
    state.keep_two_sides(two_sides);
    state.lie_in(memory);
    undo.lie_in(memory);
    state.allocate(table, parts);
    undo.allocate(table, {&state}, parts);
  }
  [[nodiscard]] float* moment(int64_t element) const {
    return reinterpret_cast<float*>(state.at(table.parameter(0), 0, 0, element));
  }
  void change(int64_t first, int64_t count, float by) {
    undo.start_block(table.parameter(0), 0, first, count);
    for (int64_t i = first; i < first + count; ++i) {
      value[static_cast<size_t>(i)] += by;
      *moment(i) += by;
    }
    undo.end_block();
  }
};

/// The same memory, found.
struct Reader {
  const Rank& of;
  optim::OptimizerState state{1};
  optim::Undo undo;
  explicit Reader(const Rank& rank) : of(rank) {
    size_t next = 0;
    const optim::StateMemory found = [&](int64_t) { return of.shared[next++]; };
    state.keep_two_sides(rank.state.has_two_sides());
    state.lie_in(found);
    undo.lie_in(found);
    state.allocate(of.table, parts);
    undo.allocate(of.table, {&state}, parts);
  }
  /// Moment and value of an element at this step. The value of what was not changed is everybody's.
  [[nodiscard]] std::pair<float, float> at(int64_t version, int64_t element) {
    (void)undo.read_ledger();
    float moment = 0, value = of.value[static_cast<size_t>(element)];
    const Parameter& parameter = of.table.parameter(0);
    const bool before = undo.ledger()->step == version + 1;
    std::memcpy(&moment, state.at(parameter, 0, 0, element, undo.side_read(0, element, before)), sizeof moment);
    if (before) {
      undo.lay_over(parameter, 0, 0, element, 1, reinterpret_cast<std::byte*>(&moment));
      undo.lay_over(parameter, 0, 1, element, 1, reinterpret_cast<std::byte*>(&value));
    }
    return {moment, value};
  }
};

void expect_step(Reader& reader, int64_t version, float moment) {
  expect(reader.undo.ledger()->versions().has(version), "the ledger has step " + std::to_string(version));
  for (const int64_t element : {0, 400, 999, 2'000, 2'500, 2'999}) {
    const auto [m, v] = reader.at(version, element);
    expect_equal(m, moment, "the moment of element " + std::to_string(element));
    expect_equal(v, 1.0F + moment, "its value");
  }
}

template <bool kTwoSides>
void the_step_before_is_there_at_every_moment(void**) {
  Rank rank(kTwoSides);
  Reader reader(rank);
  for (int64_t step = 1; step <= 3; ++step) {
    const float before = 0.5F * static_cast<float>(step - 1);
    rank.undo.clear();
    expect_step(reader, step - 1, before);
    for (const OwnedSpan& block : {OwnedSpan{0, 0, 400}, OwnedSpan{0, 400, 600}, OwnedSpan{0, 2'000, 1'000}}) {
      rank.change(block.first, block.count, 0.5F);
      expect_step(reader, step - 1, before);
    }
    expect_step(reader, step, before + 0.5F);  // another rank has counted it
    rank.undo.count(step);
    expect_step(reader, step, before + 0.5F);
    expect_step(reader, step - 1, before);
    expect_equal(*rank.moment(2'999), before + 0.5F, "the moment that the rank itself goes on from");
  }
}

template <bool kTwoSides>
void a_step_that_was_taken_back_is_not_there(void**) {
  Rank rank(kTwoSides);
  Reader reader(rank);
  rank.undo.clear();
  rank.change(0, 1'000, 0.5F);
  rank.undo.restore(rank.table);
  expect_step(reader, 0, 0);
  expect(!reader.undo.ledger()->versions().has(1), "it is nowhere whole");
  expect_equal(*rank.moment(0), 0.0F, "the moment that the rank goes on from");
  rank.undo.clear();
  rank.change(0, 1'000, 0.5F);
  rank.change(2'000, 1'000, 0.5F);
  rank.undo.count(1);
  expect_step(reader, 1, 0.5F);
  expect_step(reader, 0, 0);
}

template <bool kTwoSides>
void a_whole_step_can_be_taken_back_until_the_next_one_changes_something(void**) {
  Rank rank(kTwoSides);
  Reader reader(rank);
  for (int64_t step = 1; step <= 2; ++step) {
    rank.undo.clear();
    rank.change(0, 1'000, 0.5F);
    rank.change(2'000, 1'000, 0.5F);
    rank.undo.count(step);
  }
  rank.undo.clear();  // a pass has begun
  rank.undo.restore(rank.table);
  expect_step(reader, 2, 1.0F);
  rank.undo.go_back(rank.table);
  expect_step(reader, 1, 0.5F);
  expect_equal(rank.value[0], 1.5F, "a value");
  expect_equal(*rank.moment(0), 0.5F, "the moment that the rank goes on from");
  expect(!reader.undo.ledger()->versions().has(2) && !reader.undo.ledger()->versions().has(0), "no other step is there");
  rank.undo.clear();
  rank.change(0, 1'000, 0.5F);
  expect_step(reader, 1, 0.5F);
  rank.change(2'000, 1'000, 0.5F);
  rank.undo.count(2);
  expect_step(reader, 2, 1.0F);
  expect_step(reader, 1, 0.5F);
}

/// Parameters that no step changes stay where they are, and so do all in a step that changes nothing.
void only_what_changes_goes_to_the_other_side(void**) {
  Rank rank(true);
  Reader reader(rank);
  for (int64_t step = 1; step <= 3; ++step) {
    rank.undo.clear();
    if (step != 2) rank.change(0, 1'000, 0.5F);
    if (step != 2) rank.change(2'000, 1'000, 0.5F);
    rank.undo.count(step);
  }
  expect_step(reader, 3, 1.0F);
  expect_step(reader, 2, 0.5F);
  expect_equal(*rank.moment(0), 1.0F, "the moment that the rank goes on from");
}

template <bool kTwoSides>
void a_writer_that_goes_on_is_noticed(void**) {
  Rank rank(kTwoSides);
  Reader reader(rank);
  rank.undo.clear();
  (void)reader.undo.read_ledger();
  expect(!reader.undo.read_ledger(), "nothing has changed");
  rank.change(0, 10, 1);
  expect(reader.undo.read_ledger(), "a block has");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(the_step_before_is_there_at_every_moment<false>),
      ddp_test(the_step_before_is_there_at_every_moment<true>),
      ddp_test(a_step_that_was_taken_back_is_not_there<false>),
      ddp_test(a_step_that_was_taken_back_is_not_there<true>),
      ddp_test(a_whole_step_can_be_taken_back_until_the_next_one_changes_something<false>),
      ddp_test(a_whole_step_can_be_taken_back_until_the_next_one_changes_something<true>),
      ddp_test(only_what_changes_goes_to_the_other_side),
      ddp_test(a_writer_that_goes_on_is_noticed<false>),
      ddp_test(a_writer_that_goes_on_is_noticed<true>),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
