// SPDX-License-Identifier: Apache-2.0
// All instruction sets that this machine has, against the naive loop, bit for bit.
#include "device/cpu/reduce.hpp"

#include "support/check.hpp"
#include "unit/device/oracle.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace ddp;

constexpr uint64_t kSeed = 20240611;
constexpr size_t kGuard = 64;  // bytes around an array that must stay as they are

/// An array of random bits at a chosen distance from a 64-byte boundary.
class Array {
 public:
  Array(ddp_dtype dtype, int64_t count, int64_t shift, std::mt19937_64& random)
      : bytes_(static_cast<size_t>(count * dtype_size(dtype))), memory_(bytes_ + 4 * kGuard) {
    for (auto& byte : memory_) byte = static_cast<unsigned char>(random());
    const auto base = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = (base + kGuard + 63) / 64 * 64 - base + static_cast<size_t>(shift * dtype_size(dtype)) % 64;
    sprinkle(dtype, count, random);
    before_ = memory_;
  }
  Array(const Array&) = delete;

  [[nodiscard]] void* data() { return memory_.data() + start_; }
  [[nodiscard]] std::string content() const {
    return std::string(reinterpret_cast<const char*>(memory_.data()) + start_, bytes_);
  }
  [[nodiscard]] bool guards_kept() const {
    return std::equal(memory_.begin(), memory_.begin() + static_cast<long>(start_), before_.begin()) &&
           std::equal(memory_.begin() + static_cast<long>(start_ + bytes_), memory_.end(),
                      before_.begin() + static_cast<long>(start_ + bytes_));
  }
  void restore() { memory_ = before_; }

 private:
  /// Random bits seldom hold what matters: zeros of both signs, equal values, small numbers, ties, infinities and NaN.
  void sprinkle(ddp_dtype dtype, int64_t count, std::mt19937_64& random) {
    if (!is_floating(dtype)) return;
    const double special[] = {0.0,
                              -0.0,
                              1.0,
                              1.5,
                              -1.0,
                              3.0,
                              65504.0,
                              65520.0,
                              0x1p-14,
                              0x1p-24,
                              0x1p-25,
                              0x1p-126,
                              0x1p-133,
                              0x1p-149,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(),
                              -std::numeric_limits<double>::quiet_NaN()};
    for (int64_t i = 0; i < count; ++i) {
      const auto draw = random();
      if (draw % 4 == 0) continue;
      const double value = draw % 4 == 1 ? special[draw / 4 % std::size(special)]
                                         : static_cast<double>(static_cast<int64_t>(draw) >> 40) * 0x1p-16;
      switch (dtype) {
        case DDP_F32: store(data(), i, static_cast<float>(value)); break;
        case DDP_F64: store(data(), i, value); break;
        case DDP_F16: store(data(), i, encode_half(value)); break;
        default: store(data(), i, encode_bfloat(value)); break;
      }
    }
  }

  size_t bytes_;
  size_t start_ = 0;
  std::vector<unsigned char> memory_, before_;
};

struct Case {
  cpu::ReduceRule rule;
  int32_t inputs;
  int64_t count;
  int64_t shift;
};

std::vector<std::unique_ptr<Array>> inputs_of(const Case& c, std::mt19937_64& random) {
  std::vector<std::unique_ptr<Array>> arrays;
  for (int32_t k = 0; k < c.inputs; ++k)
    arrays.push_back(std::make_unique<Array>(c.rule.dtype, c.count, c.shift == 99 ? k : c.shift, random));
  return arrays;
}

std::string expected_of(const Case& c, std::vector<std::unique_ptr<Array>>& arrays) {
  std::vector<const void*> in;
  for (auto& array : arrays) in.push_back(array->data());
  std::string expected(static_cast<size_t>(c.count * dtype_size(c.rule.dtype)), '\0');
  naive_reduce(c.rule, in, expected.data(), c.count);
  return expected;
}

void check(const Case& c, const char* set, const char* form, const std::string& expected, const Array& out) {
  const std::string got = out.content();
  if (got == expected && out.guards_kept()) return;
  size_t at = 0;
  while (at < got.size() && got[at] == expected[at]) ++at;
  const auto size = static_cast<size_t>(dtype_size(c.rule.dtype));
  print_error("%s %s %s op %d divisor %d inputs %d count %lld shift %lld: wrong at element %zu (guards %s)\n", set, form,
              dtype_name(c.rule.dtype), static_cast<int>(c.rule.op), c.rule.divisor, c.inputs,
              static_cast<long long>(c.count), static_cast<long long>(c.shift), at / size,
              out.guards_kept() ? "kept" : "broken");
  _fail(__FILE__, __LINE__);
}

/// One case in every form: to a new array, over the first input, over all inputs, to some of the inputs, and in pieces.
void run_case(const Case& c, const char* set, std::mt19937_64& random) {
  auto arrays = inputs_of(c, random);
  const std::string expected = expected_of(c, arrays);
  std::vector<void*> all;
  for (auto& array : arrays) all.push_back(array->data());
  const void* const* in = all.data();
  const auto restore = [&] {
    for (auto& array : arrays) array->restore();
  };

  Array fresh(c.rule.dtype, c.count, c.shift == 99 ? 3 : c.shift, random);
  void* to_fresh[] = {fresh.data()};
  cpu::reduce(c.rule, in, c.inputs, to_fresh, 1, c.count);
  check(c, set, "to a new array", expected, fresh);

  cpu::reduce(c.rule, in, c.inputs, all.data() + c.inputs - 1, 1, c.count);
  check(c, set, "over the last input", expected, *arrays.back());
  restore();

  cpu::reduce(c.rule, in, c.inputs, all.data(), c.inputs, c.count);
  for (auto& array : arrays) check(c, set, "over all inputs", expected, *array);
  restore();

  std::vector<void*> mixed(all.rbegin(), all.rend());
  mixed.push_back(fresh.data());
  cpu::reduce(c.rule, in, c.inputs, mixed.data(), c.inputs + 1, c.count);
  for (auto& array : arrays) check(c, set, "over all inputs, reversed", expected, *array);
  check(c, set, "to one more", expected, fresh);
  restore();

  const ddp_dtype carried = accumulator_dtype(c.rule.dtype);
  Array carry(carried, c.count, 1, random);
  cpu::reduce_subtree(c.rule, in, c.inputs, carry.data(), c.count);
  cpu::reduce_finish(c.rule, carry.data(), all.data(), c.inputs, c.count);
  for (auto& array : arrays) check(c, set, "unfinished", expected, *array);
  assert_true(carry.guards_kept());
}

void each_set(const Case& c, std::mt19937_64& random) {
  const std::mt19937_64 start = random;
  for (const char* set : kAllSets) {
    if (!cpu::set_instruction_set(set)) continue;
    random = start;
    run_case(c, set, random);
  }
}

void every_type_and_operation_equals_the_naive_loop(void**) {
  std::mt19937_64 random(kSeed);
  for (const ddp_dtype dtype : kAllDtypes)
    for (const ddp_reduce op : kAllOps)
      for (const int32_t inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 17, 24, 33})
        for (const int64_t count : {0, 1, 5, 64, 333, 1500}) each_set({{dtype, op, inputs}, inputs, count, 0}, random);
}

void every_alignment_and_length_equals_the_naive_loop(void**) {
  std::mt19937_64 random(kSeed + 1);
  for (const ddp_dtype dtype : kAllDtypes)
    for (int64_t count = 0; count < 300; count += dtype == DDP_F32 ? 1 : 7)
      for (const int64_t shift : {0, 1, 7, 15, 99}) each_set({{dtype, DDP_AVERAGE, 3}, 3, count, shift}, random);
}

/// Long enough for an end of its own before the first aligned element, and once for several blocks of every dtype.
void long_arrays_at_any_distance_from_a_cache_line_equal_the_naive_loop(void**) {
  std::mt19937_64 random(kSeed + 3);
  for (const ddp_dtype dtype : kAllDtypes)
    for (const int32_t inputs : {2, 9})
      for (const int64_t shift : {0, 5, 99})
        each_set({{dtype, DDP_AVERAGE, inputs}, inputs, shift == 0 && inputs == 9 ? 33'001 : 8'323, shift}, random);
}

void every_divisor_is_rounded_like_a_division(void**) {
  std::mt19937_64 random(kSeed + 2);
  for (const ddp_dtype dtype : kAllDtypes)
    for (const int32_t divisor : {1, 2, 3, 5, 7, 8, 255, 256, 1000, 65536, 16777217, 2147483647})
      each_set({{dtype, DDP_AVERAGE, divisor}, 2, 2000, 0}, random);
}

void integer_sums_wrap_and_averages_truncate_towards_zero(void**) {
  const int32_t a[] = {INT32_MAX, -5, 5, INT32_MIN};
  const int32_t b[] = {1, -2, 2, 0};
  const void* in[] = {a, b};
  int32_t out[4] = {};
  void* to[] = {out};
  cpu::reduce({DDP_I32, DDP_SUM, 2}, in, 2, to, 1, 4);
  assert_int_equal(out[0], INT32_MIN);
  cpu::reduce({DDP_I32, DDP_AVERAGE, 2}, in, 2, to, 1, 4);
  assert_int_equal(out[0], INT32_MIN / 2);
  assert_int_equal(out[1], -3);
  assert_int_equal(out[2], 3);
  const uint8_t c[] = {200}, d[] = {100};
  const void* bytes[] = {c, d};
  uint8_t byte[1];
  void* to_byte[] = {byte};
  cpu::reduce({DDP_U8, DDP_AVERAGE, 2}, bytes, 2, to_byte, 1, 1);
  assert_int_equal(byte[0], (300 - 256) / 2);
}

void a_nan_result_is_the_positive_quiet_nan(void**) {
  const uint32_t nan_bits[] = {0xffc12345u, 0x7f800001u, 0x7fffffffu};
  const float one[] = {1, 1, 1};
  const void* in[] = {nan_bits, one};
  for (const ddp_reduce op : kAllOps) {
    uint32_t out[3] = {};
    void* to[] = {out};
    cpu::reduce({DDP_F32, op, 2}, in, 2, to, 1, 3);
    for (const uint32_t bits : out) assert_int_equal(bits, 0x7fc00000u);
  }
}

void min_and_max_order_the_signs_of_zero(void**) {
  const float a[] = {0.0f, -0.0f};
  const float b[] = {-0.0f, 0.0f};
  const void* in[] = {a, b};
  float out[2];
  void* to[] = {out};
  cpu::reduce({DDP_F32, DDP_MIN, 2}, in, 2, to, 1, 2);
  assert_true(std::signbit(out[0]) && std::signbit(out[1]));
  cpu::reduce({DDP_F32, DDP_MAX, 2}, in, 2, to, 1, 2);
  assert_false(std::signbit(out[0]) || std::signbit(out[1]));
}

void an_unknown_instruction_set_is_refused(void**) {
  const std::string before = cpu::instruction_set();
  assert_false(cpu::set_instruction_set("abacus"));
  assert_string_equal(cpu::instruction_set(), before.c_str());
}

#if defined(__x86_64__)
void the_caller_may_flush_subnormals_without_changing_the_sum(void**) {
  const float tiny[] = {0x1p-149f, 0x1p-130f};
  const void* in[] = {tiny, tiny};
  float out[2] = {};
  void* to[] = {out};
  const uint32_t saved = _mm_getcsr();
  const uint32_t flushing = saved | 0x8040u | 0x6000u;  // flush to zero, subnormals are zero, round towards zero
  _mm_setcsr(flushing);
  cpu::reduce({DDP_F32, DDP_SUM, 2}, in, 2, to, 1, 2);
  const uint32_t after = _mm_getcsr();
  _mm_setcsr(saved);
  assert_int_equal(after & 0xffc0u, flushing & 0xffc0u);
  assert_true(out[0] == 0x1p-148f && out[1] == 0x1p-129f);
}
#endif

int main() {
  const CMUnitTest tests[] = {
    cmocka_unit_test(every_type_and_operation_equals_the_naive_loop),
    cmocka_unit_test(every_alignment_and_length_equals_the_naive_loop),
    cmocka_unit_test(long_arrays_at_any_distance_from_a_cache_line_equal_the_naive_loop),
    cmocka_unit_test(every_divisor_is_rounded_like_a_division),
    cmocka_unit_test(integer_sums_wrap_and_averages_truncate_towards_zero),
    cmocka_unit_test(a_nan_result_is_the_positive_quiet_nan),
    cmocka_unit_test(min_and_max_order_the_signs_of_zero),
    cmocka_unit_test(an_unknown_instruction_set_is_refused),
#if defined(__x86_64__)
    cmocka_unit_test(the_caller_may_flush_subnormals_without_changing_the_sum),
#endif
  };
  return cmocka_run_group_tests_name("reduce", tests, nullptr, nullptr);
}
