// SPDX-License-Identifier: Apache-2.0
#include "core/memory_ranges.hpp"

#include "support/check.hpp"

constexpr int kElements = 4096;
alignas(64) float memory[kElements];

Tensor at(int64_t begin, int64_t count) { return flat_tensor(memory + begin, DDP_F32, count); }
bool nobody(int32_t) { return false; }

/// Gradients of 10 elements at 0, 100, 200, ...
struct Gradients {
  MemoryRanges lent;
  std::vector<Tensor> where;

  explicit Gradients(int32_t count) {
    for (int32_t index = 0; index < count; ++index) {
      where.push_back(at(100 * index, 10));
      lent.claim(where.back(), {MemoryRanges::Kind::kGrad, index});
      lent.add_parameter();
    }
  }
  void move(int32_t index, int64_t begin, const MemoryRanges::IsMarked& is_marked = nobody) {
    Tensor moved = where[static_cast<size_t>(index)];
    moved.data = reinterpret_cast<std::byte*>(memory + begin);
    lent.move_grad(index, where[static_cast<size_t>(index)], moved, is_marked);
    where[static_cast<size_t>(index)] = moved;
  }
  /// The owner of its memory, as a mark needs it.
  int32_t taken_by(int32_t index) { return lent.is_contested(index) ? lent.settle(index) : MemoryRanges::kNobody; }
};

ddp_case(who_got_the_memory_last_has_it) {
  Gradients g(2);
  g.move(1, 5);  // five elements of the other one
  expect_equal(g.taken_by(1), MemoryRanges::kNobody, "the last one");
  expect_equal(g.taken_by(0), 1, "the one before");
  g.move(1, 10);  // side by side
  expect_equal(g.taken_by(0), MemoryRanges::kNobody, "the memory is free again");
  expect_equal(g.taken_by(1), MemoryRanges::kNobody, "the last one");
}

ddp_case(blocks_that_change_hands_are_no_conflict) {
  Gradients g(3);
  g.move(0, 100), g.move(1, 200), g.move(2, 0);
  for (int32_t index = 0; index < 3; ++index) expect_equal(g.taken_by(index), MemoryRanges::kNobody, "all have moved");
}

ddp_case(who_is_marked_keeps_the_memory) {
  Gradients g(2);
  g.move(1, 0, [](int32_t index) { return index == 0; });
  expect_equal(g.taken_by(0), MemoryRanges::kNobody, "it is marked");
  expect_equal(g.taken_by(1), 0, "it came later");
  g.move(1, 300);
  expect_equal(g.taken_by(1), MemoryRanges::kNobody, "elsewhere");
}

ddp_case(what_never_moves_is_found) {
  Gradients g(1);
  g.lent.claim(at(1000, 10), {MemoryRanges::Kind::kValue, 0});
  g.lent.claim(at(2000, 10), {MemoryRanges::Kind::kOwnGrad, 7});
  expect(!g.lent.find_fixed(at(0, 1000)), "a gradient may move away");
  expect(g.lent.find_fixed(at(0, 1001))->kind == MemoryRanges::Kind::kValue, "a value");
  expect_equal(g.lent.find_fixed(at(1995, 6))->index, 7, "a gradient of the library");
  expect(!g.lent.find_fixed(at(2010, 10)) && !g.lent.find_fixed(at(1500, 0)), "beside it, and nothing at all");
  g.lent.release(at(1000, 10));
  expect(!g.lent.find(at(1000, 10)), "released");
}

/// Random moves and marks, compared with a list that is searched from end to end.
ddp_case(it_is_as_a_list_of_all) {
  constexpr int32_t kCount = 12;
  std::mt19937 random(20261127);
  for (int round = 0; round < 300; ++round) {
    Gradients g(kCount);
    std::set<int32_t> marked;
    const auto is_marked = [&](int32_t index) { return marked.count(index) != 0; };
    for (int step = 0; step < 40; ++step) {
      const auto index = static_cast<int32_t>(random() % kCount);
      if (is_marked(index)) continue;
      if (random() % 3 != 0) {
        g.move(index, static_cast<int64_t>(random() % 150), is_marked);
        continue;
      }
      bool overlaps_marked = false;
      const float* const mine = reinterpret_cast<float*>(g.where[static_cast<size_t>(index)].data);
      for (const int32_t other : marked)
        overlaps_marked =
            overlaps_marked || std::abs(mine - reinterpret_cast<float*>(g.where[static_cast<size_t>(other)].data)) < 10;
      const int32_t by = g.taken_by(index);
      if (overlaps_marked) expect(by != MemoryRanges::kNobody, "two that are marked overlap");
      if (by == MemoryRanges::kNobody) {
        marked.insert(index);
        continue;
      }
      const float* const theirs = reinterpret_cast<float*>(g.where[static_cast<size_t>(by)].data);
      expect(std::abs(mine - theirs) < 10, "who is named overlaps");
    }
  }
}
