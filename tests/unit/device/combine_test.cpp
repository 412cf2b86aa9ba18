// SPDX-License-Identifier: Apache-2.0
// Sums from nodes that were formed elsewhere: whatever the nodes, the bits of one reduction over all inputs.

#include "support/check.hpp"
#include "unit/device/oracle.hpp"

constexpr int64_t kCounts[] = {1, 127, 700};

struct Case {
  cpu::ReduceRule rule;
  int64_t ranks;
  int64_t count;
  bool weighted;
  bool lacks_some;
};

/// All inputs, and the nodes that were cut from them.
class World {
 public:
  World(const Case& c, std::mt19937_64& random) : case_(c) {
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      arrays_.push_back(random_values(c.rule.dtype, c.count, random()));
      weights_.push_back(c.weighted ? static_cast<double>(random() % 100 + 1) / 8 : 1.0);
    }
    for (int64_t rank = 0; rank < c.ranks; ++rank)
      in_.push_back(c.lacks_some && rank % 3 == 1 ? nullptr
                                                  : static_cast<const void*>(arrays_[static_cast<size_t>(rank)].data()));
  }
  [[nodiscard]] Bytes whole() const {
    Bytes out(arrays_[0].size());
    void* to = out.data();
    cpu::reduce(case_.rule, in_.data(), static_cast<int32_t>(case_.ranks), &to, 1, case_.count, weights());
    return out;
  }
  /// Node [lo, hi) as a leaf, as an unfinished sum, or in two halves, by chance.
  void cut(int64_t lo, int64_t hi, std::mt19937_64& random) {
    const auto any = std::any_of(in_.begin() + lo, in_.begin() + hi, [](const void* one) { return one != nullptr; });
    if (!any && random() % 2 == 0) return;  // left out
    if (hi - lo == 1 && (!any || random() % 2 == 0)) {
      parts_.push_back({lo, hi, in_[static_cast<size_t>(lo)], true, weights_[static_cast<size_t>(lo)]});
    } else if (hi - lo == 1 || (any && random() % 3 == 0)) {
      sums_.emplace_back(static_cast<size_t>(case_.count * dtype_size(case_.rule.carry_dtype())));
      cpu::reduce_subtree(case_.rule, in_.data() + lo, static_cast<int32_t>(hi - lo), sums_.back().data(), case_.count,
                          case_.weighted ? weights_.data() + lo : nullptr);
      parts_.push_back({lo, hi, sums_.back().data(), false, 1});
    } else {
      const auto mid = lo + static_cast<int64_t>(oracle_left(static_cast<size_t>(hi - lo)));
      cut(lo, mid, random);
      cut(mid, hi, random);
    }
  }
  [[nodiscard]] Bytes combined() const {
    Bytes out(arrays_[0].size()), second(out.size());
    void* to[] = {out.data(), second.data()};
    cpu::combine(case_.rule, parts_.data(), static_cast<int32_t>(parts_.size()), case_.ranks, to, 2, case_.count);
    expect(out == second, "both outputs");
    return out;
  }
  [[nodiscard]] Bytes combined_later() const {
    Bytes carry(static_cast<size_t>(case_.count * dtype_size(case_.rule.carry_dtype()))), out(arrays_[0].size());
    void* to = out.data();
    cpu::combine_subtree(case_.rule, parts_.data(), static_cast<int32_t>(parts_.size()), case_.ranks, carry.data(),
                         case_.count);
    cpu::reduce_finish(case_.rule, carry.data(), &to, 1, case_.count);
    return out;
  }

 private:
  [[nodiscard]] const double* weights() const { return case_.weighted ? weights_.data() : nullptr; }

  Case case_;
  std::vector<Bytes> arrays_;
  std::vector<double> weights_;
  std::vector<const void*> in_;
  std::vector<Bytes> sums_;
  std::vector<cpu::SumPart> parts_;
};

void run_case(const Case& c, std::mt19937_64& random) {
  for (int turn = 0; turn < 4; ++turn) {
    World world(c, random);
    world.cut(0, c.ranks, random);
    const std::string what = std::string(dtype_name(c.rule.dtype)) + ", op " + std::to_string(c.rule.op) + ", " +
                             std::to_string(c.ranks) + " ranks, " + std::to_string(c.count) + " elements" +
                             (c.weighted ? ", weighted" : "") + (c.lacks_some ? ", some are missing" : "") +
                             (c.rule.is_wired() ? ", wired" : "");
    expect(world.combined() == world.whole(), what);
    expect(world.combined_later() == world.whole(), what + ", unfinished");
  }
}

void each_case(const cpu::ReduceRule& asked, bool weighted) {
  std::mt19937_64 random(20261122);
  for (const int64_t ranks : {1, 2, 3, 5, 6, 8, 9, 12, 17, 24, 33, 70})
    for (const int64_t count : kCounts)
      for (const bool lacks_some : {false, true}) {
        cpu::ReduceRule rule = asked;
        rule.divisor = static_cast<int32_t>(ranks);
        rule.by_weight = weighted;
        rule.weight_sum = 3.7;
        run_case({rule, ranks, count, weighted, lacks_some}, random);
      }
}

ddp_case(nodes_of_any_width_give_the_bits_of_one_sum) {
  for (const ddp_dtype dtype : kAllDtypes)
    for (const ddp_reduce op : kAllOps) each_case({dtype, op}, false);
}

ddp_case(weighted_leaves_and_sums_too) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16}) each_case({dtype, DDP_AVERAGE}, true);
}

ddp_case(terms_of_two_bytes_too) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64})
    for (const ddp_dtype wire : {DDP_F16, DDP_BF16})
      for (const bool weighted : {false, true}) {
        cpu::ReduceRule rule{dtype, DDP_AVERAGE};
        rule.wire = wire;
        each_case(rule, weighted);
      }
}

/// The owner of a slice adds over its own elements.
ddp_case(a_result_may_be_written_over_a_leaf) {
  float own[] = {1, 2, 3};
  const float sum[] = {10, 20, 30};
  const cpu::SumPart parts[] = {{0, 1, own, true, 2.0}, {1, 2, sum, false, 1}};
  void* out = own;
  cpu::combine({DDP_F32, DDP_SUM, 2}, parts, 2, 2, &out, 1, 3);
  expect(own[0] == 12 && own[1] == 24 && own[2] == 36, "2 x + sum");
}
