// SPDX-License-Identifier: Apache-2.0
// Weighted sums on all instruction sets that this machine has, against the naive loop, bit for bit.

#include "support/check.hpp"
#include "unit/device/oracle.hpp"

constexpr ddp_dtype kFloats[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16};
constexpr int64_t kCounts[] = {1, 5, 128, 333, 9'001};

struct Inputs {
  ddp_dtype dtype;
  int64_t count;
  std::vector<std::vector<unsigned char>> memory;
  std::vector<void*> at;
  std::vector<double> weights;

  Inputs(ddp_dtype type, int32_t number, int64_t elements, std::mt19937_64& random) : dtype(type), count(elements) {
    for (int32_t k = 0; k < number; ++k) {
      memory.emplace_back(static_cast<size_t>(count * dtype_size(dtype)));
      weights.push_back(static_cast<double>(random() % 1'000'003) / 977.0 + 0.25);
      for (int64_t i = 0; i < count; ++i)
        put(memory.back().data(), i, static_cast<double>(static_cast<int64_t>(random()) >> 40) * 0x1p-12);
    }
    for (auto& one : memory) at.push_back(one.data());
  }
  void put(void* to, int64_t i, double value) const {
    switch (dtype) {
      case DDP_F32: return store(to, i, static_cast<float>(value));
      case DDP_F64: return store(to, i, value);
      case DDP_F16: return store(to, i, encode_half(value));
      default: return store(to, i, encode_bfloat(value));
    }
  }
  [[nodiscard]] double get(size_t k, int64_t i) const {
    const void* from = memory[k].data();
    switch (dtype) {
      case DDP_F32: return static_cast<double>(load<float>(from, i));
      case DDP_F64: return load<double>(from, i);
      case DDP_F16: return decode_half(load<uint16_t>(from, i));
      default: return decode_bfloat(load<uint16_t>(from, i));
    }
  }
  /// The rule of reduce.hpp, written naively.
  template <class Acc>
  [[nodiscard]] std::string expected(double divisor) const {
    std::string out(memory[0].size(), '\0');
    for (int64_t i = 0; i < count; ++i) {
      std::vector<Acc> products;
      for (size_t k = 0; k < memory.size(); ++k) {
        volatile const Acc product = static_cast<Acc>(get(k, i)) * static_cast<Acc>(weights[k]);
        products.push_back(at[k] != nullptr ? product : static_cast<Acc>(-0.0));
      }
      const Acc sum = oracle_sum(products);
      put(out.data(), i, static_cast<double>(static_cast<Acc>(sum / static_cast<Acc>(divisor))));
    }
    return out;
  }
  [[nodiscard]] std::string expected(double divisor) const {
    return dtype == DDP_F64 ? expected<double>(divisor) : expected<float>(divisor);
  }
  [[nodiscard]] std::string content(size_t k) const { return {memory[k].begin(), memory[k].end()}; }
};

double sum_of(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  return sum;
}

template <class Check>
void each_case(Check&& check) {
  for (const char* set : kAllSets) {
    if (!cpu::set_instruction_set(set)) continue;
    std::mt19937_64 random(20240701);
    for (const ddp_dtype dtype : kFloats)
      for (const int32_t number : {1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 24})
        for (const int64_t count : kCounts) {
          Inputs inputs(dtype, number, count, random);
          const cpu::ReduceRule rule{dtype, DDP_AVERAGE, 1, true, sum_of(inputs.weights)};
          check(inputs, rule, inputs.expected(rule.weight_sum));
        }
  }
}

ddp_case(a_weighted_mean_equals_the_naive_loop) {
  each_case([](Inputs& inputs, const cpu::ReduceRule& rule, const std::string& expected) {
    const auto number = static_cast<int32_t>(inputs.at.size());
    std::string fresh(expected.size(), 'x');
    void* out[] = {fresh.data()};
    cpu::reduce(rule, inputs.at.data(), number, out, 1, inputs.count, inputs.weights.data());
    assert_true(fresh == expected);
    cpu::reduce(rule, inputs.at.data(), number, inputs.at.data(), number, inputs.count, inputs.weights.data());
    for (size_t k = 0; k < inputs.memory.size(); ++k) assert_true(inputs.content(k) == expected);
  });
}

ddp_case(an_unfinished_weighted_sum_has_the_same_bits) {
  each_case([](Inputs& inputs, const cpu::ReduceRule& rule, const std::string& expected) {
    const auto number = static_cast<int32_t>(inputs.at.size());
    std::string carry(static_cast<size_t>(inputs.count) * 8, 'x');
    cpu::reduce_subtree(rule, inputs.at.data(), number, carry.data(), inputs.count, inputs.weights.data());
    cpu::reduce_finish(rule, carry.data(), inputs.at.data(), number, inputs.count);
    for (size_t k = 0; k < inputs.memory.size(); ++k) assert_true(inputs.content(k) == expected);
  });
}

/// Their memory is not read; a NaN there would be seen.
ddp_case(who_does_not_count_moves_nobody) {
  each_case([](Inputs& inputs, const cpu::ReduceRule& rule, const std::string&) {
    const auto number = static_cast<int32_t>(inputs.at.size());
    if (inputs.count > 1000) return;  // the naive loop is slow
    for (uint64_t mask = 1; mask<48; mask += number> 5 ? 7 : 1) {
      Inputs some = inputs;
      for (size_t k = 0; k < some.at.size(); ++k) {
        some.at[k] = (mask * 0x9249249249 >> k & 1) != 0 ? some.memory[k].data() : nullptr;
        if (some.at[k] == nullptr) some.weights[k] = 0;
      }
      if (std::all_of(some.at.begin(), some.at.end(), [](const void* one) { return one == nullptr; })) continue;
      const std::string wanted = some.expected(rule.weight_sum);
      std::string fresh(wanted.size(), 'x'), carry(static_cast<size_t>(inputs.count) * 8, 'x');
      void* out[] = {fresh.data()};
      cpu::reduce(rule, some.at.data(), number, out, 1, inputs.count, some.weights.data());
      assert_true(fresh == wanted);
      cpu::reduce_subtree(rule, some.at.data(), number, carry.data(), inputs.count, some.weights.data());
      cpu::reduce_finish(rule, carry.data(), out, 1, inputs.count);
      assert_true(fresh == wanted);
    }
  });
}

ddp_case(weights_of_one_give_the_bits_of_no_weights) {
  each_case([](Inputs& inputs, const cpu::ReduceRule&, const std::string& expected) {
    const auto number = static_cast<int32_t>(inputs.at.size());
    const std::vector<double> ones(inputs.at.size(), 1.0);
    std::string plain(expected.size(), 'x');
    std::string weighted(expected.size(), 'y');
    void* to_plain[] = {plain.data()};
    void* to_weighted[] = {weighted.data()};
    cpu::reduce({inputs.dtype, DDP_AVERAGE, number}, inputs.at.data(), number, to_plain, 1, inputs.count);
    cpu::reduce({inputs.dtype, DDP_AVERAGE, 1, true, static_cast<double>(number)}, inputs.at.data(), number, to_weighted, 1,
                inputs.count, ones.data());
    assert_true(plain == weighted);
  });
}

ddp_case(the_sum_of_the_weights_may_be_any_number) {
  for (const double divisor : {0x1p-40, 0.1, 0.5, 3.0, 4096.0, 1e12, 0x1p60}) {
    const float x[] = {1.0F, 3.0F, -7.25F};
    float out[3] = {};
    const void* in[] = {x};
    void* to[] = {out};
    cpu::reduce({DDP_F32, DDP_AVERAGE, 1, true, divisor}, in, 1, to, 1, 3);
    for (int i = 0; i < 3; ++i) assert_true(out[i] == x[i] / static_cast<float>(divisor));
  }
}
