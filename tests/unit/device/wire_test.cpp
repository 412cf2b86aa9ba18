// SPDX-License-Identifier: Apache-2.0
// Sums whose terms have 16 bits, on all instruction sets that this machine has, against the rule of reduce.hpp written
// naively, bit for bit.

#include "support/check.hpp"
#include "unit/device/oracle.hpp"

constexpr int64_t kCounts[] = {1, 5, 127, 128, 333, 9'001};
constexpr int32_t kRanks[] = {1, 2, 3, 4, 5, 7, 9, 12, 17};
constexpr ddp_dtype kWires[] = {DDP_F16, DDP_BF16};

double decoded(ddp_dtype wire, uint16_t bits) { return wire == DDP_F16 ? decode_half(bits) : decode_bfloat(bits); }
uint16_t encoded(ddp_dtype wire, double value) { return wire == DDP_F16 ? encode_half(value) : encode_bfloat(value); }

/// A gradient's values: usual ones, very small, very large, and NaN.
double some_value(std::mt19937_64& random) {
  const uint64_t bits = random();
  const double usual = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-60;
  switch (bits % 23) {
    case 0: return usual * 0x1p-24;   // subnormal in F16
    case 1: return usual * 0x1p15;    // overflows F16
    case 2: return usual * 0x1p-140;  // subnormal in F32
    case 3: return bits & 32 ? INFINITY : -INFINITY;
    case 4: return bits & 32 ? NAN : 0.0;
    case 5: return -0.0;
    default: return usual;
  }
}

template <class T>
struct Inputs {
  std::vector<std::vector<T>> values;
  std::vector<double> weights;
  bool lacks_some = false;  // every third rank, from the second on, does not count

  Inputs(int32_t ranks, int64_t count, std::mt19937_64& random) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      values.emplace_back();
      for (int64_t i = 0; i < count; ++i) values.back().push_back(static_cast<T>(some_value(random)));
      weights.push_back(static_cast<double>(static_cast<float>(static_cast<double>(random() % 1000 + 1) / 256.0)));
    }
  }
  [[nodiscard]] std::vector<const void*> pointers() const {
    std::vector<const void*> in;
    for (size_t rank = 0; rank < values.size(); ++rank) in.push_back(absent(rank) ? nullptr : values[rank].data());
    return in;
  }
  [[nodiscard]] bool absent(size_t rank) const { return lacks_some && rank % 3 == 1; }
  /// x * weight / divisor in T, and one rounding.
  [[nodiscard]] uint16_t term(const cpu::ReduceRule& rule, size_t rank, size_t i, bool weighted) const {
    volatile T x = values[rank][i];
    if (weighted) x = x * static_cast<T>(weights[rank]);
    if (rule.op == DDP_AVERAGE) x = x / static_cast<T>(rule.divisor);
    return encoded(rule.wire, static_cast<double>(x));
  }
  [[nodiscard]] uint16_t sum(const cpu::ReduceRule& rule, size_t i, bool weighted) const {
    const auto add = [&](uint16_t a, uint16_t b) {
      volatile const float added = static_cast<float>(decoded(rule.wire, a)) + static_cast<float>(decoded(rule.wire, b));
      return encoded(rule.wire, static_cast<double>(added));
    };
    return oracle_tree(
        0, values.size(), [&](size_t rank) { return absent(rank) ? uint16_t{0x8000} : term(rule, rank, i, weighted); }, add);
  }
  [[nodiscard]] std::vector<T> expected(const cpu::ReduceRule& rule, bool weighted) const {
    std::vector<T> out;
    for (size_t i = 0; i < values[0].size(); ++i) {
      volatile T value = static_cast<T>(decoded(rule.wire, sum(rule, i, weighted)));
      if (rule.by_weight && rule.weight_sum != rule.divisor) value = value * static_cast<T>(rule.divisor / rule.weight_sum);
      out.push_back(static_cast<T>(value));
    }
    return out;
  }
};

/// Equal bits; any NaN equals any NaN with the same sign after a multiplication, so only its being one counts.
template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& wanted, const std::string& what) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(got[i])) continue;
    if (std::memcmp(&got[i], &wanted[i], sizeof(T)) != 0)
      throw std::runtime_error(what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " +
                               std::to_string(wanted[i]));
  }
}

/// reduce, in place and to one output; in parts through a carry; packed, added and unpacked: the same bits.
template <class T>
void every_way(const cpu::ReduceRule& rule, const Inputs<T>& inputs, bool weighted, const std::string& what) {
  const auto count = static_cast<int64_t>(inputs.values[0].size());
  const auto ranks = static_cast<int32_t>(inputs.values.size());
  const std::vector<T> wanted = inputs.expected(rule, weighted);
  const double* const weights = weighted ? inputs.weights.data() : nullptr;

  Inputs<T> copy = inputs;
  std::vector<void*> out;
  for (auto& one : copy.values) out.push_back(one.data());
  cpu::reduce(rule, copy.pointers().data(), ranks, out.data(), ranks, count, weights);
  for (const auto& one : copy.values) expect_same(one, wanted, what + ", in place");

  std::vector<uint16_t> carry(static_cast<size_t>(count));
  std::vector<T> result(static_cast<size_t>(count));
  const auto in = inputs.pointers();
  cpu::reduce_subtree(rule, in.data(), ranks, carry.data(), count, weights);
  cpu::unpack(rule, carry.data(), result.data(), count);
  expect_same(result, wanted, what + ", unfinished");

  std::vector<std::vector<uint16_t>> terms(static_cast<size_t>(ranks), carry);
  std::vector<const void*> packed;
  for (size_t rank = 0; rank < terms.size(); ++rank) {
    if (in[rank] != nullptr) cpu::pack(rule, in[rank], weighted ? inputs.weights[rank] : 1.0, terms[rank].data(), count);
    packed.push_back(in[rank] != nullptr ? terms[rank].data() : nullptr);
  }
  void* sum = carry.data();
  cpu::reduce(rule.packed(), packed.data(), ranks, &sum, 1, count);
  cpu::unpack(rule, carry.data(), result.data(), count);
  expect_same(result, wanted, what + ", packed");
}

template <class T>
void every_rule(ddp_dtype dtype) {
  std::mt19937_64 random(20260101);
  for (const char* set : kAllSets) {
    if (!cpu::set_instruction_set(set)) continue;
    for (const ddp_dtype wire : kWires)
      for (const int32_t ranks : kRanks)
        for (const int64_t count : kCounts)
          for (const ddp_reduce op : {DDP_AVERAGE, DDP_SUM}) {
            if (ranks > 9 && count > 1000) continue;  // the naive loop is slow
            cpu::ReduceRule rule{dtype, op, ranks};
            rule.wire = wire;
            Inputs<T> inputs(ranks, count, random);
            const std::string what =
                std::string(set) + " " + dtype_name(wire) + " " + std::to_string(ranks) + " ranks, " + std::to_string(count);
            every_way(rule, inputs, false, what);
            every_way(rule, inputs, true, what + ", weighted");
            rule.by_weight = op == DDP_AVERAGE;
            rule.weight_sum = 2.5;
            every_way(rule, inputs, true, what + ", by weight");
            inputs.lacks_some = true;
            every_way(rule, inputs, true, what + ", some are missing");
          }
  }
}

ddp_case(singles_follow_the_rule) { every_rule<float>(DDP_F32); }
ddp_case(doubles_follow_the_rule) { every_rule<double>(DDP_F64); }

ddp_case(weights_of_one_change_nothing) {
  cpu::ReduceRule rule{DDP_F32, DDP_AVERAGE, 2};
  rule.wire = DDP_BF16;
  const float a[] = {1.0F, -0.0F, 3.0e38F, 1e-40F};
  const float b[] = {2.0F, -0.0F, 3.0e38F, 1e-40F};
  const void* const in[] = {a, b};
  const double ones[] = {1, 1};
  float plain[4], weighted[4];
  void* out = plain;
  cpu::reduce(rule, in, 2, &out, 1, 4);
  out = weighted;
  cpu::reduce(rule, in, 2, &out, 1, 4, ones);
  expect(std::memcmp(plain, weighted, sizeof plain) == 0, "the same bits");
  expect(plain[0] == 1.5F && std::signbit(plain[1]), "the mean");
}
