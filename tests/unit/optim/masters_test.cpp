// SPDX-License-Identifier: Apache-2.0
// Master weights against an F32 optimizer without rounding: a BF16 parameter is its copy rounded, small steps add up, and
// a parameter that its owner changes is taken as it is. With them the undo, which saves and restores both.
#include "optim/masters.hpp"

#include "core/float16.hpp"
#include "device/cpu/master_copies.hpp"
#include "optim/undo.hpp"
#include "support/check.hpp"

constexpr int64_t kCount = 5000;  // more than a block
constexpr OwnedSpan kWhole{0, 0, kCount};

OwnedParts whole(int32_t) { return OwnedParts(&kWhole, 1); }

struct Brain {
  std::vector<uint16_t> value = std::vector<uint16_t>(kCount, double_to_bfloat(1.0));
  std::vector<uint16_t> grad = std::vector<uint16_t>(kCount, double_to_bfloat(1.0));
  Parameters table;
  optim::Masters masters;
  explicit Brain(bool two_sides = false) {
    masters.keep_two_sides(two_sides);
    const Tensor tensor = flat_tensor(grad.data(), DDP_BF16, kCount);
    (void)table.add_parameter("w", flat_tensor(value.data(), DDP_BF16, kCount), &tensor);
    masters.allocate(table, whole);
  }
  /// value -= rate * grad, on the copies.
  void step(float rate, int64_t first = 0, int64_t count = kCount) {
    auto* const copies = reinterpret_cast<float*>(masters.store().at(table.parameter(0), 0, 0, first));
    cpu::update_masters(DDP_BF16, value.data() + first, grad.data() + first, copies, count,
                        [&](float* copy, const float* gradient, int64_t, int64_t n) {
                          for (int64_t i = 0; i < n; ++i) copy[i] -= rate * gradient[i];
                        });
  }
  [[nodiscard]] float copy(int64_t i) const { return reinterpret_cast<const float*>(masters.store().data(0, 0))[i]; }
};

ddp_case(small_steps_add_up) {
  Brain brain;
  float wanted = 1;
  for (int i = 0; i < 100; ++i) {
    brain.step(0.0001F);
    wanted -= 0.0001F;
    for (const int64_t at : {int64_t{0}, int64_t{2047}, int64_t{2048}, kCount - 1}) {
      expect_equal(brain.copy(at), wanted, "the copy");
      expect_equal(brain.value[static_cast<size_t>(at)], double_to_bfloat(static_cast<double>(wanted)), "the parameter");
    }
  }
  expect(bfloat_to_float(brain.value[0]) < 1, "without copies every step would vanish in rounding");
}

ddp_case(a_parameter_that_its_owner_changed_is_taken_as_it_is) {
  Brain brain;
  brain.step(0.001F);
  brain.value[3000] = double_to_bfloat(-7.0);
  brain.step(0.25F);
  expect_equal(brain.copy(3000), -7.25F, "the changed element");
  expect_equal(brain.copy(2999), 1 - 0.001F - 0.25F, "its neighbour keeps its copy");
}

ddp_case(parts_give_the_bits_of_the_whole) {
  Brain whole, parts;
  for (int i = 0; i < 3; ++i) {
    whole.step(0.01F);
    parts.step(0.01F, 0, 1024);
    parts.step(0.01F, 1024, kCount - 1024);
  }
  expect(whole.value == parts.value && whole.copy(4000) == parts.copy(4000), "parts and whole");
}

ddp_case(an_undone_step_leaves_values_and_copies_as_they_were) {
  Brain brain;
  brain.step(0.001F);
  const std::vector<uint16_t> values = brain.value;
  const float copy = brain.copy(10);
  optim::Undo undo;
  undo.allocate(brain.table, {&brain.masters.store()}, whole);
  for (int round = 0; round < 2; ++round) {
    undo.clear();
    undo.save(brain.table.parameter(0), 0, 0, 2048);
    brain.step(0.3F, 0, 2048);
    expect(brain.value != values, "the step changed something");
    undo.restore(brain.table);
    expect(brain.value == values && brain.copy(10) == copy, "everything is as before");
    undo.restore(brain.table);
  }
}

/// Parts of a parameter that is split over buckets: blocks come part by part in any order, or over all of them at once.
ddp_case(a_step_of_several_parts_is_undone) {
  constexpr OwnedSpan kParts[] = {{0, 0, 1024}, {0, 1024, 2048}, {0, 3072, kCount - 3072}};
  Brain brain;
  brain.step(0.001F);
  const std::vector<uint16_t> values = brain.value;
  const float copy = brain.copy(kCount - 1);
  optim::Undo undo;
  undo.allocate(brain.table, {&brain.masters.store()}, [&](int32_t) { return OwnedParts(kParts); });
  const std::vector<std::vector<OwnedSpan>> orders = {
      {{0, 3072, 1000}, {0, 4072, kCount - 4072}, {0, 0, 1024}, {0, 1024, 2048}}, {{0, 0, kCount}}, {{0, 1024, 1024}}};
  for (const std::vector<OwnedSpan>& blocks : orders) {
    undo.clear();
    for (const OwnedSpan& block : blocks) {
      undo.save(brain.table.parameter(0), 0, block.first, block.count);
      brain.step(0.3F, block.first, block.count);
    }
    expect(brain.value != values, "the step changed something");
    undo.restore(brain.table);
    expect(brain.value == values && brain.copy(kCount - 1) == copy, "everything is as before");
  }
}

/// Copies with two sides are not saved: a step that counts is on the other one, a step that is undone never was.
ddp_case(copies_with_two_sides_change_places) {
  Brain brain(true), other;
  optim::Undo undo;
  undo.allocate(brain.table, {&brain.masters.store()}, whole);
  const auto make_step = [&](float rate) {
    undo.clear();
    for (const OwnedSpan& block : {OwnedSpan{0, 0, 2048}, OwnedSpan{0, 2048, kCount - 2048}}) {
      undo.start_block(brain.table.parameter(0), 0, block.first, block.count);
      brain.step(rate, block.first, block.count);
      undo.end_block();
    }
  };
  for (int64_t step = 1; step <= 5; ++step) {
    const float before = brain.copy(3000);
    make_step(0.3F);
    expect(brain.value != other.value, "the step changed something");
    expect(brain.copy(3000) == before, "a step that is under way leaves the copies");
    undo.restore(brain.table);
    expect(brain.value == other.value && brain.copy(3000) == before, "everything is as before");
    make_step(0.003F);
    undo.count();
    other.step(0.003F);
    expect(brain.value == other.value && brain.copy(3000) == other.copy(3000), "the step counts");
  }
}
