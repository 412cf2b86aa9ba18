// SPDX-License-Identifier: Apache-2.0
// Kernels of the fake GPU do to device memory what the CPU's loops do to arrays, and look at their gates when they run.

#include "core/exact_sum.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/update_kernels.hpp"
#include "extra/batch_norm/moments.hpp"
#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr ddp_gpu_shape kPlain{1, kInfinity, nullptr, 0};

std::vector<float> some_floats(size_t count, float step) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = step * static_cast<float>(i) - 3;
  return values;
}

std::vector<uint16_t> rounded(ddp_dtype dtype, const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  cpu::convert(DDP_F32, values.data(), dtype, halves.data(), static_cast<int64_t>(values.size()));
  return halves;
}

void done() { assert_ok(api.stream_synchronize(nullptr)); }

struct StopWord {
  uint32_t* host = nullptr;
  uint32_t* device = nullptr;
  StopWord() {
    void *h = nullptr, *d = nullptr;
    assert_ok(api.host_alloc(&h, &d, sizeof(uint32_t)));
    host = static_cast<uint32_t*>(h);
    device = static_cast<uint32_t*>(d);
  }
  void set(uint32_t value) const { __atomic_store_n(host, value, __ATOMIC_RELEASE); }
};

fake_gpu_case(move_converts_scales_and_limits) {
  const std::vector<float> values = some_floats(1500, 0.125F);
  float* const from = make_array(values);
  uint16_t* const to = make_array(std::vector<uint16_t>(1500));
  const ddp_gpu_span span{from, to, 1500};
  assert_ok(api.move(&span, 1, DDP_F32, DDP_BF16, 0.5, 40, nullptr, nullptr));
  done();
  std::vector<float> wanted = values;
  for (float& x : wanted) x = std::min(std::max(x * 0.5F, -40.0F), 40.0F);
  check(values_of(to, 1500) == rounded(DDP_BF16, wanted));
  const ddp_gpu_span zeros{nullptr, to, 3};
  assert_ok(api.move(&zeros, 1, DDP_F32, DDP_BF16, 1, kInfinity, nullptr, nullptr));
  done();
  check_equal(values_of(to, 3)[2], 0);
}

fake_gpu_case(move_into_f64_multiplies_in_f64) {
  float* const from = make_array<float>({3});
  double* const to = make_array<double>({0});
  const ddp_gpu_span span{from, to, 1};
  assert_ok(api.move(&span, 1, DDP_F32, DDP_F64, 1.0 / 3, kInfinity, nullptr, nullptr));
  done();
  check(values_of(to, 1)[0] == 3 * (1.0 / 3));
}

fake_gpu_case(spans_are_read_before_the_call_returns) {
  float *const from = make_array<float>({5}), *const to = make_array<float>({0});
  ddp_gpu_span span{from, to, 1};
  pause(nullptr);
  assert_ok(api.move(&span, 1, DDP_F32, DDP_F32, 1, kInfinity, nullptr, nullptr));
  span = {};
  resume(nullptr);
  done();
  check(values_of(to, 1)[0] == 5);
}

fake_gpu_case(the_stop_word_counts_when_the_kernel_runs) {
  const StopWord stop;
  float *const from = make_array<float>({5}), *const to = make_array<float>({0});
  const ddp_gpu_span span{from, to, 1};
  pause(nullptr);
  assert_ok(api.move(&span, 1, DDP_F32, DDP_F32, 1, kInfinity, stop.device, nullptr));
  stop.set(1);
  resume(nullptr);
  done();
  check(values_of(to, 1)[0] == 0);
  stop.set(0);
  assert_ok(api.move(&span, 1, DDP_F32, DDP_F32, 1, kInfinity, stop.device, nullptr));
  done();
  check(values_of(to, 1)[0] == 5);
}

fake_gpu_case(exchange_swaps_bytes) {
  uint8_t *const a = make_array<uint8_t>({1, 2, 3}), *const b = make_array<uint8_t>({4, 5, 6});
  const ddp_gpu_span span{a, b, 2};
  assert_ok(api.exchange(&span, 1, nullptr));
  done();
  check(values_of(a, 3) == (std::vector<uint8_t>{4, 5, 3}));
  check(values_of(b, 3) == (std::vector<uint8_t>{1, 2, 6}));
}

fake_gpu_case(an_average_moves_towards_its_values) {
  uint16_t* const values = make_array(rounded(DDP_F16, {8, 16}));
  float* const average = make_array<float>({0, 4});
  const ddp_gpu_span span{values, average, 2};
  assert_ok(api.ema(&span, 1, DDP_F16, 0.75, nullptr, nullptr));
  done();
  check(values_of(average, 2) == (std::vector<float>{2, 7}));
}

fake_gpu_case(adam_is_the_cpus) {
  const std::vector<float> grads = some_floats(700, 0.01F);
  std::vector<float> value = some_floats(700, 0.5F), m(700, 0.1F), v(700, 0.2F);
  const cpu::AdamStep step{.keep = 0.99,
                           .weight_decay = 0.01,
                           .beta1 = 0.9,
                           .share1 = 0.1,
                           .beta2 = 0.99,
                           .share2 = 0.01,
                           .size = 0.1,
                           .root_scale = 1.5,
                           .epsilon = 1e-8,
                           .shape = {.scale = 0.5, .limit = 1}};
  const ddp_gpu_update update{make_array(value), make_array(grads), {make_array(m), make_array(v)}, nullptr, 700, 0};
  const ddp_gpu_adam_rule rule{0.99, 0.01, 0.9, 0.1, 0.99, 0.01, 0.1, 1.5, 1e-8};
  const ddp_gpu_shape shape{0.5, 1, nullptr, 0};
  assert_ok(api.adam(&update, 1, &rule, 1, DDP_F32, &shape, nullptr, nullptr));
  done();
  cpu::adam_update(step, DDP_F32, value.data(), grads.data(), m.data(), v.data(), 700);
  check(values_of(static_cast<float*>(update.value), 700) == value);
  check(values_of(static_cast<float*>(update.state[1]), 700) == v);
}

fake_gpu_case(a_gate_replaces_the_scale_or_skips) {
  float *const value = make_array<float>({1}), *const grad = make_array<float>({4});
  const ddp_gpu_update update{value, grad, {nullptr, nullptr}, nullptr, 1, 0};
  const ddp_gpu_sgd_rule rule{1, 0, 0, 1, 0, 0};
  ddp_gpu_gate* const gate = make_array<ddp_gpu_gate>({{0.25, 0, 0, 0}});
  const ddp_gpu_shape shape{100, kInfinity, gate, 0};
  assert_ok(api.sgd(&update, 1, &rule, 1, DDP_F32, &shape, nullptr, nullptr));
  done();
  check(values_of(value, 1)[0] == 0);  // 1 - 1 * 4 * 0.25
  const ddp_gpu_gate skip{0.25, 0, 1, 0};
  check(poke(gate, &skip, sizeof skip));
  assert_ok(api.sgd(&update, 1, &rule, 1, DDP_F32, &shape, nullptr, nullptr));
  done();
  check(values_of(value, 1)[0] == 0);
}

fake_gpu_case(a_master_keeps_small_changes_and_follows_its_owner) {
  uint16_t* const value = make_array(rounded(DDP_BF16, {256, 256}));
  uint16_t* const grad = make_array(rounded(DDP_BF16, {0.25F, 0.25F}));
  float* const master = make_array<float>({256.125F, 7});  // the second is not its value: the owner changed that
  const ddp_gpu_update update{value, grad, {nullptr, nullptr}, master, 2, 0};
  const ddp_gpu_sgd_rule rule{1, 0, 0, 1, 0, 0};
  assert_ok(api.sgd(&update, 1, &rule, 1, DDP_BF16, &kPlain, nullptr, nullptr));
  done();
  check(values_of(master, 2) == (std::vector<float>{255.875F, 255.75F}));
  check(values_of(value, 2) == rounded(DDP_BF16, {255.875F, 255.75F}));
}

fake_gpu_case(norm_terms_decide_about_the_step) {
  float* const data = make_array<float>({3, 4});
  int64_t* const words = make_array(std::vector<int64_t>(ExactSum::kWords));
  ddp_gpu_gate* const gate = make_array<ddp_gpu_gate>({{}});
  const ddp_gpu_span spans[] = {{data, nullptr, 1}, {data + 1, nullptr, 1}};
  assert_ok(api.add_norm_terms(spans, 2, DDP_F32, 2, words, nullptr));
  assert_ok(api.decide(words, 2, 1, 1, gate, nullptr));
  done();
  ddp_gpu_gate decided = values_of(gate, 1)[0];
  check(decided.norm == 2.5 && decided.skip == 0);
  check(decided.scale == 0.5 * (1 / (2.5 + 1e-6)));
  const float infinite = INFINITY;
  check(poke(data, &infinite, 4));
  assert_ok(api.add_norm_terms(spans, 1, DDP_F32, 2, words, nullptr));
  assert_ok(api.decide(words, 1, 0, 1, gate, nullptr));
  done();
  check(values_of(gate, 1)[0].skip == 1);
}

fake_gpu_case(the_largest_magnitude_is_kept_and_a_nan_is_above_all) {
  float* const data = make_array<float>({1, -5, 3, -NAN});
  double* const largest = make_array<double>({0});
  auto* const bits = reinterpret_cast<uint64_t*>(largest);
  const ddp_gpu_span first{data, nullptr, 2}, second{data + 2, nullptr, 1}, third{data + 3, nullptr, 1};
  assert_ok(api.largest(&first, 1, DDP_F32, bits, nullptr));
  assert_ok(api.largest(&second, 1, DDP_F32, bits, nullptr));
  done();
  check(values_of(largest, 1)[0] == 5);
  assert_ok(api.largest(&third, 1, DDP_F32, bits, nullptr));
  assert_ok(api.largest(&first, 1, DDP_F32, bits, nullptr));
  done();
  check(std::isnan(values_of(largest, 1)[0]));
}

fake_gpu_case(equal_bytes_have_equal_hashes) {
  uint8_t* const data = make_array<uint8_t>({1, 2, 1, 2, 1, 3});
  uint64_t* const out = make_array<uint64_t>({0, 0, 0});
  const ddp_gpu_span spans[] = {{data, nullptr, 2}, {data + 2, nullptr, 2}, {data + 4, nullptr, 2}};
  assert_ok(api.hash(spans, 3, out, nullptr));
  done();
  const std::vector<uint64_t> hashes = values_of(out, 3);
  check(hashes[0] == hashes[1] && hashes[0] != hashes[2]);
}

fake_gpu_case(wrong_arguments_are_refused) {
  float* const data = make_array<float>({1});
  const ddp_gpu_span span{data, data, 1}, negative{data, data, -1};
  const auto refused = [](int32_t code) { check_equal(api.error_kind(code), DDP_GPU_BAD_ARGUMENT); };
  refused(api.move(&span, 1, DDP_I32, DDP_F32, 1, kInfinity, nullptr, nullptr));
  refused(api.move(&negative, 1, DDP_F32, DDP_F32, 1, kInfinity, nullptr, nullptr));
  refused(api.move(nullptr, 1, DDP_F32, DDP_F32, 1, kInfinity, nullptr, nullptr));
  const ddp_gpu_update update{data, data, {nullptr, nullptr}, nullptr, 1, 1};
  const ddp_gpu_sgd_rule rule{};
  refused(api.sgd(&update, 1, &rule, 1, DDP_F32, &kPlain, nullptr, nullptr));
  assert_ok(api.move(nullptr, 0, DDP_F32, DDP_F32, 1, kInfinity, nullptr, nullptr));
}

fake_gpu_case(batch_norm_forward_is_the_cpus) {
  const std::vector<float> x = some_floats(12, 0.5F);  // [2, 3, 2]
  const ddp_gpu_batch batch{2, 3, 2, DDP_F32, 0};
  float* const data = make_array(x);
  double* const block = make_array(std::vector<double>(7));
  double* const coefficients = make_array(std::vector<double>(9));
  float *const mean = make_array(std::vector<float>(3)), *const invstd = make_array(std::vector<float>(3));
  void* scratch = nullptr;
  assert_ok(api.alloc(&scratch, api.bn_scratch_bytes(&batch)));
  assert_ok(api.bn_moments(&batch, data, block, scratch, nullptr));
  ddp_gpu_bn_join join{.blocks = block,
                       .block_count = 1,
                       .channels = 3,
                       .epsilon = 1e-5,
                       .saved_mean = {mean, DDP_F32, 0},
                       .saved_invstd = {invstd, DDP_F32, 0},
                       .coefficients = coefficients};
  assert_ok(api.bn_join(&join, nullptr, nullptr));
  assert_ok(api.bn_apply(&batch, data, coefficients, data, nullptr, nullptr));
  done();
  const batch_norm::Moments moments = batch_norm::measure(DDP_F32, x.data(), {2, 3, 2});
  std::vector<double> factor, shift(3);
  for (const double m2 : moments.m2) factor.push_back(1 / std::sqrt(m2 / 4 + 1e-5));
  std::vector<float> wanted(12);
  batch_norm::apply_forward(DDP_F32, x.data(), {2, 3, 2}, moments.mean.data(), factor.data(), shift.data(), wanted.data());
  check(values_of(data, 12) == wanted);
  check(values_of(mean, 3)[1] == static_cast<float>(moments.mean[1]));
}

fake_gpu_case(batch_norm_backward_is_the_cpus) {
  const std::vector<float> x = some_floats(6, 0.5F), dy = some_floats(6, 0.25F);  // [2, 3]
  const ddp_gpu_batch batch{2, 3, 1, DDP_F32, 0};
  const std::vector<float> means{1, 2, 3}, invstds{0.5F, 0.25F, 2};
  const ddp_gpu_channels mean{make_array(means), DDP_F32, 0}, invstd{make_array(invstds), DDP_F32, 0};
  float *const dbias = make_array<float>({1, 1, 1}), *const data = make_array(x), *const slopes = make_array(dy);
  double *const sums = make_array(std::vector<double>(6)), *const coefficients = make_array(std::vector<double>(12));
  void* scratch = nullptr;
  assert_ok(api.alloc(&scratch, api.bn_scratch_bytes(&batch)));
  assert_ok(api.bn_sums(&batch, slopes, data, &mean, sums, scratch, nullptr));
  ddp_gpu_bn_slopes with{.own = sums,
                         .all = sums,
                         .channels = 3,
                         .share = 0.5,
                         .accumulate = 1,
                         .saved_mean = mean,
                         .saved_invstd = invstd,
                         .dbias = {dbias, DDP_F32, 0},
                         .coefficients = coefficients};
  assert_ok(api.bn_slopes(&with, nullptr, nullptr));
  assert_ok(api.bn_apply_backward(&batch, slopes, data, coefficients, slopes, nullptr, nullptr));
  done();
  for (size_t c = 0; c < 3; ++c) {  // by hand: two values a channel
    const double a = x[c] - means[c], b = x[c + 3] - means[c];
    const double sum = static_cast<double>(dy[c]) + dy[c + 3], product = dy[c] * a + dy[c + 3] * b;
    check(values_of(dbias, 3)[c] == static_cast<float>(1 + sum));
    const double f = invstds[c];
    const double wanted = dy[c] * f - a * (f * f * f * (product * 0.5)) - f * (sum * 0.5);
    check(std::fabs(values_of(slopes, 6)[c] - wanted) < 1e-6 * (1 + std::fabs(wanted)));
  }
}
