// SPDX-License-Identifier: Apache-2.0
// Programs that trap on NaN and infinity (Fortran, feenableexcept), flush subnormal numbers to zero (-ffast-math) or round
// otherwise: no call of the library ends them, the bits are those of an ordinary program, and their settings are as before
// after each call and in their own functions.

#include "support/check.hpp"
#include "support/float_habits.hpp"
#include "support/public_api.hpp"
#include "support/ranks.hpp"

constexpr int kCount = 96;
constexpr uint32_t kNan = 0x7fc00000, kInfinity = 0x7f800000, kSubnormal = 0x00000345;

/// Bits of F32 numbers around 1, some subnormal; whatever the environment is.
void fill(uint32_t* bits, uint32_t seed) {
  for (int i = 0; i < kCount; ++i) {
    seed = seed * 1664525U + 1013904223U;
    bits[i] = i % 7 == 3 ? kSubnormal + (seed >> 20) : 0x3f000000U + (seed >> 9) + (seed & 0x80000000U);
  }
}
void to_16_bits(uint32_t* bits) {
  auto* const halves = reinterpret_cast<uint16_t*>(bits);
  for (int i = 0; i < kCount; ++i) {
    const auto high = static_cast<uint16_t>(bits[i] >> 16);
    std::memcpy(halves + i, &high, sizeof high);
  }
}

struct Model : NotCopied {
  ddp_model* model = nullptr;
  uint32_t values[2][kCount], grads[2][kCount];
  ddp_dtype dtype;

  Model(HabitRun& run, ddp_group* group, ddp_dtype type, const std::function<void(ddp_model_options&)>& change = {},
        const std::function<void(ddp_model*)>& before_commit = {})
      : dtype(type) {
    ddp_model_options options;
    CALL(run, ddp_model_options_init(&options, sizeof options));
    options.first_bucket_bytes = options.bucket_bytes = 1;
    options.progress = dtype == DDP_F32 ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
    if (change) change(options);
    CALL(run, ddp_model_create(group, &options, &model));
    for (int p = 0; p < 2; ++p) {
      fill(values[p], 17);
      fill(grads[p], 99);
      if (dtype == DDP_BF16) to_16_bits(values[p]);
      const ddp_tensor value{values[p], dtype, DDP_CPU, 0, 2, {12, 8}}, grad{grads[p], dtype, DDP_CPU, 0, 2, {12, 8}};
      CALL(run, ddp_model_add_parameter(model, p == 0 ? "first" : "second", &value, &grad, nullptr));
    }
    if (before_commit) before_commit(model);
    CALL(run, ddp_model_commit(model, nullptr));
  }
  ~Model() { ddp_model_destroy(model); }

  void pass(HabitRun& run, uint32_t seed, bool wild, ddp_pass mode = DDP_PASS_REDUCE) {
    CALL(run, ddp_model_begin_backward(model, mode));
    for (int p = 0; p < 2; ++p) {
      fill(grads[p], seed + static_cast<uint32_t>(10 * run.rank + p));
      if (wild && run.rank == 1) grads[p][5] = kNan, grads[p][6] = kInfinity, grads[p][50] = kInfinity;
      if (wild && run.rank == 0) grads[p][50] = kInfinity | 0x80000000U;  // the sum is NaN
      if (dtype == DDP_BF16) to_16_bits(grads[p]);
    }
    for (int p = 1; p >= 0; --p) CALL(run, ddp_model_mark_ready(model, p, nullptr));
    CALL(run, ddp_model_end_backward(model, nullptr));
  }
  void keep_values(HabitRun& run) { run.keep(values, sizeof values); }
  void keep(HabitRun& run) {
    keep_values(run);
    run.keep(grads, sizeof grads);
  }
};

template <class Options>
using Create = ddp_status (*)(ddp_model*, const Options*, const ddp_optimizer_options*, ddp_optimizer**);

template <class Options>
void step_with(HabitRun& run, ddp_group* group, const ddp_optimizer_options& options, ddp_dtype dtype, bool scaled,
               Create<Options> create) {
  Model model(run, group, dtype);
  ddp_optimizer* optimizer = nullptr;
  CALL(run, create(model.model, nullptr, &options, &optimizer));
  if (scaled) {
    ddp_loss_scale_options scale;
    CALL(run, ddp_loss_scale_options_init(&scale, sizeof scale));
    scale.interval = 1;
    scale.growth = 3;
    CALL(run, ddp_optimizer_set_loss_scale(optimizer, &scale));
  }
  for (uint32_t pass = 0; pass < 4; ++pass) {
    model.pass(run, 1000 * pass, pass == 2);
    CALL(run, ddp_optimizer_step(optimizer, nullptr));
    double numbers[3] = {};
    CALL(run, ddp_optimizer_get_grad_norm(optimizer, &numbers[0]));
    CALL(run, ddp_optimizer_get_loss_scale(optimizer, &numbers[1]));
    int64_t skipped = 0;
    CALL(run, ddp_optimizer_get_skipped_count(optimizer, &skipped));
    run.keep(numbers, sizeof numbers);
    run.keep(&skipped, sizeof skipped);
    model.keep_values(run);
  }
  ddp_optimizer_destroy(optimizer);
}

/// Every combination of the place of the step and its effect on the gradients.
template <class Options>
void steps(HabitRun& run, ddp_group* group, Create<Options> create) {
  for (int where = 0; where < 4; ++where)
    for (int what = 0; what < 6; ++what)
      for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
        ddp_optimizer_options options;
        CALL(run, ddp_optimizer_options_init(&options, sizeof options));
        options.shard = where & 1;
        options.in_backward = where >> 1;
        options.master_weights = dtype == DDP_BF16;
        if (what == 1 || what == 4) options.max_norm = 0.5;
        if (what == 2) options.clip_value = 0.25;
        if (what == 3 || what == 4) options.nonfinite = DDP_NONFINITE_SKIP;
        if (what == 5 && where == 0) options.nonfinite = DDP_NONFINITE_FAIL;
        step_with<Options>(run, group, options, dtype, what == 5 && where != 0, create);
      }
}

void optimizers(HabitRun& run, ddp_group* group) {
  steps<ddp_sgd_options>(run, group, ddp_optimizer_create_sgd);
  steps<ddp_adam_options>(run, group, ddp_optimizer_create_adam);
}

void gradients(HabitRun& run, ddp_group* group) {
  for (const bool wild : {false, true}) {
    Model model(run, group, DDP_F32);
    for (const double p : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
      model.pass(run, 7, wild);
      double norms[2] = {};
      CALL(run, ddp_model_get_grad_norm(model.model, p, &norms[0], nullptr));
      CALL(run, ddp_model_clip_grad_norm(model.model, 0.125, p, &norms[1], nullptr));
      run.keep(norms, sizeof norms);
      model.keep(run);
      CALL(run, ddp_model_scale_grad(model.model, 1e-38, nullptr));
      model.keep(run);
      CALL(run, ddp_model_clip_grad_value(model.model, 1e-40, nullptr));
      model.keep(run);
    }
    int64_t hash = 0;
    CALL(run, ddp_model_get_hash(model.model, &hash));
    run.keep(&hash, sizeof hash);
    CALL(run, ddp_model_check_replicas(model.model, nullptr));
    model.pass(run, 8, wild, DDP_PASS_LOCAL);
    std::memcpy(model.values, model.grads, sizeof model.values);
    CALL(run, ddp_model_average_parameters(model.model, nullptr));
    model.keep(run);
  }
}

void averages(HabitRun& run, ddp_group* group) {
  Model model(run, group, DDP_F32);
  const double decays[2] = {0.9, 0.999};
  ddp_ema* ema = nullptr;
  CALL(run, ddp_ema_create(model.model, decays, 2, &ema));
  for (uint32_t step = 0; step < 4; ++step) {
    for (auto& value : model.values) fill(value, step);
    if (step == 3) model.values[0][1] = kNan, model.values[1][2] = kInfinity;
    CALL(run, ddp_ema_update(ema, nullptr));
    CALL(run, ddp_ema_swap(ema, 1, nullptr));
    model.keep_values(run);
    CALL(run, ddp_ema_swap(ema, 1, nullptr));
  }
  ddp_ema_destroy(ema);
}

struct Seen {
  Settings settings;
  bool same = true;
};
int32_t own_hook(void* user_data, ddp_bucket* bucket) {
  auto& seen = *static_cast<Seen*>(user_data);
  seen.same = seen.same && Settings() == seen.settings;
  ddp_tensor contents;
  ddp_group* group = nullptr;
  if (ddp_bucket_get_contents(bucket, &contents) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
  const bool reduced = ddp_group_all_reduce(group, &contents, DDP_AVERAGE, nullptr) == DDP_OK;
  seen.same = seen.same && Settings() == seen.settings;
  return reduced ? 0 : 1;
}

/// On the lane a hook finds the standard's environment, inside a call that of its caller.
void hooks(HabitRun& run, ddp_group* group) {
  ddp_powersgd_options powersgd;
  CALL(run, ddp_powersgd_options_init(&powersgd, sizeof powersgd));
  powersgd.start_pass = 0;
  Settings standard;
  std::thread([&standard] {
    fesetenv(FE_DFL_ENV);
    standard = Settings();
  }).join();
#if defined(__x86_64__)
  standard.control = 0x1f80;
#endif
  for (int kind = 0; kind < 5; ++kind) {
    Seen seen{kind == 4 ? run.settings() : standard};
    constexpr ddp_dtype kWires[] = {DDP_F16, DDP_BF16};
    void* const user_data = kind == 2 ? static_cast<void*>(&powersgd) : kind > 2 ? &seen : nullptr;
    Model model(
        run, group, DDP_F32,
        [&](ddp_model_options& options) {
          options.progress = kind == 4 ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
          if (kind < 2) options.wire = kWires[kind];
        },
        [&](ddp_model* built) {
          if (kind >= 2) CALL(run, ddp_model_set_hook(built, kind == 2 ? ddp_hook_powersgd : own_hook, user_data, nullptr));
        });
    for (uint32_t pass = 0; pass < 3; ++pass) {
      model.pass(run, pass, pass == 2);
      model.keep(run);
    }
    expect(seen.same, "the environment of hook " + std::to_string(kind));
  }
}

void weights(HabitRun& run, ddp_group* group) {
  Model model(run, group, DDP_F32, [](ddp_model_options& options) { options.divisor = DDP_DIVISOR_WEIGHTS; });
  for (const double weight : {3.0, 1e-40, 0.0}) {
    CALL(run, ddp_model_set_weight(model.model, run.rank == 0 ? 7.0 : weight));
    model.pass(run, 5, weight == 0.0);
    model.keep(run);
  }
}

int32_t custom(void* user_data, const ddp_update_slice*) {
  auto& seen = *static_cast<Seen*>(user_data);
  seen.same = seen.same && Settings() == seen.settings;
  return 0;
}
int32_t write(void* user_data, const void* data, int64_t bytes) {
  static_cast<std::string*>(user_data)->append(static_cast<const char*>(data), static_cast<size_t>(bytes));
  return 0;
}
int64_t read(void* user_data, void* data, int64_t capacity) {
  auto& text = *static_cast<std::string*>(user_data);
  const size_t count = std::min(text.size(), static_cast<size_t>(capacity));
  std::memcpy(data, text.data(), count);
  text.erase(0, count);
  return static_cast<int64_t>(count);
}

void programs_own(HabitRun& run, ddp_group* group) {
  Model model(run, group, DDP_F32);
  Seen seen{run.settings()};
  ddp_optimizer* optimizer = nullptr;
  CALL(run, ddp_optimizer_create_custom(model.model, nullptr, nullptr, nullptr, custom, &seen, nullptr, &optimizer));
  model.pass(run, 3, false);
  CALL(run, ddp_optimizer_step(optimizer, nullptr));
  expect(seen.same, "the environment of an update");
  ddp_optimizer_destroy(optimizer);

  ddp_optimizer* adam = nullptr;
  CALL(run, ddp_optimizer_create_adam(model.model, nullptr, nullptr, &adam));
  CALL(run, ddp_optimizer_step(adam, nullptr));
  model.values[0][9] = kSubnormal;
  std::string file;
  ddp_state state;
  CALL(run, ddp_state_init(&state, sizeof state));
  state.model = model.model;
  state.optimizer = adam;
  CALL(run, ddp_state_save(&state, write, &file));
  run.keep(file.data(), file.size());
  CALL(run, ddp_state_load(&state, read, &file, nullptr, nullptr));
  model.keep(run);
  ddp_optimizer_destroy(adam);
}

void collectives(HabitRun& run, ddp_group* group) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64})
    for (const ddp_reduce op : {DDP_AVERAGE, DDP_SUM, DDP_MIN, DDP_MAX}) {
      if (dtype == DDP_C64 && op > DDP_SUM) continue;
      uint32_t bits[kCount];
      fill(bits, 3 + static_cast<uint32_t>(run.rank));
      if (run.rank == 0) bits[2] = 0x7fc07fc0, bits[3] = 0x7f807f80;
      const ddp_tensor tensor{bits, dtype, DDP_CPU, 0, 1, {kCount / 2}};
      CALL(run, ddp_group_all_reduce(group, &tensor, op, nullptr));
      run.keep(bits, sizeof bits);
    }
  double metrics[3] = {1e-320, 0.1, 3};
  CALL(run, ddp_group_reduce_metrics(group, metrics, 3, DDP_AVERAGE));
  run.keep(metrics, sizeof metrics);
  uint32_t rows[kCount];
  fill(rows, 5);
  rows[1] = kNan;
  int64_t where[4] = {1, 2, 3, 4 + run.rank}, out[8], count = 0;
  const ddp_tensor indices{where, DDP_I64, DDP_CPU, 0, 1, {4}}, data{rows, DDP_F32, DDP_CPU, 0, 2, {4, 8}};
  CALL(run, ddp_group_all_reduce_rows(group, &indices, &data, DDP_AVERAGE, &count, nullptr));
  const ddp_tensor all{out, DDP_I64, DDP_CPU, 0, 1, {5}}, sums{rows, DDP_F32, DDP_CPU, 0, 2, {5, 8}};
  CALL(run, ddp_group_get_rows(group, &all, &sums));
  run.keep(rows, sizeof rows);
}

void batch_norm(HabitRun& run, ddp_group* group) {
  for (const bool wild : {false, true}) {
    uint32_t x[kCount], y[kCount] = {}, dx[kCount] = {}, dy[kCount], mean[8] = {}, var[8] = {};
    double saved[2][8] = {};
    fill(x, 40 + static_cast<uint32_t>(run.rank));
    fill(dy, 50 + static_cast<uint32_t>(run.rank));
    if (wild) x[3] = kNan, x[4] = kInfinity;
    const auto matrix = [](uint32_t* bits) { return ddp_tensor{bits, DDP_F32, DDP_CPU, 0, 2, {kCount / 8, 8}}; };
    const ddp_tensor xs = matrix(x), ys = matrix(y), dxs = matrix(dx), dys = matrix(dy);
    const ddp_tensor means{mean, DDP_F32, DDP_CPU, 0, 1, {8}}, vars{var, DDP_F32, DDP_CPU, 0, 1, {8}};
    const ddp_tensor m{saved[0], DDP_F64, DDP_CPU, 0, 1, {8}}, s{saved[1], DDP_F64, DDP_CPU, 0, 1, {8}};
    int64_t count = 0;
    CALL(run, ddp_batch_norm_forward(group, nullptr, &xs, nullptr, nullptr, &means, &vars, &ys, &m, &s, &count, nullptr));
    CALL(run, ddp_batch_norm_backward(group, nullptr, &dys, &xs, nullptr, &m, &s, count, &dxs, nullptr, nullptr, nullptr));
    for (const auto* array : {y, dx}) run.keep(array, sizeof x);
    run.keep(mean, sizeof mean);
    run.keep(var, sizeof var);
    run.keep(saved, sizeof saved);
  }
}

using Part = void (*)(HabitRun&, ddp_group*);

/// Everything that rank 0 and rank 1 get, one after the other.
std::vector<unsigned char> run_with(Habit habit, Part part, const std::string& name) {
  std::vector<unsigned char> results[2];
  run_ranks(2, [&](int rank) {
    HabitRun run(habit, rank);
    run.begin();
    ddp_group_options options;
    CALL(run, ddp_group_options_init(&options, sizeof options));
    options.rank = rank;
    options.world_size = 2;
    options.timeout_ms = options.rendezvous_timeout_ms = 20'000;
    ddp_group* group = nullptr;
    CALL(run, ddp_group_create(("local://floats-" + name).c_str(), &options, &group));
    part(run, group);
    CALL(run, ddp_group_barrier(group));
    ddp_group_destroy(group);
    expect(Settings() == run.settings(), "the settings after destroying");
    fesetenv(FE_DFL_ENV);
    results[rank] = std::move(run.result);
  });
  results[0].insert(results[0].end(), results[1].begin(), results[1].end());
  return results[0];
}

void expect_the_same_for_all_programs(Part part) {
  const std::vector<unsigned char> wanted = run_with(Habit::kOrdinary, part, "ordinary");
  expect(wanted.size() > 1000, "there is a result");
  for (const auto& [habit, name] : {std::pair{Habit::kTraps, "traps"}, std::pair{Habit::kFlushes, "flushes"}}) {
    const std::vector<unsigned char> got = run_with(habit, part, name);
    expect_equal(got.size(), wanted.size(), std::string(name) + ": bytes");
    for (size_t i = 0; i < got.size(); ++i)
      expect(got[i] == wanted[i],
             std::string(name) + ": byte " + std::to_string(i) + " of the results is that of an ordinary program");
  }
}

ddp_case(optimizers_are_the_same_for_all_programs) { expect_the_same_for_all_programs(optimizers); }
ddp_case(gradients_are_the_same_for_all_programs) { expect_the_same_for_all_programs(gradients); }
ddp_case(averages_are_the_same_for_all_programs) { expect_the_same_for_all_programs(averages); }
ddp_case(hooks_are_the_same_for_all_programs) { expect_the_same_for_all_programs(hooks); }
ddp_case(weights_are_the_same_for_all_programs) { expect_the_same_for_all_programs(weights); }
ddp_case(functions_of_the_program_are_the_same_for_all_programs) { expect_the_same_for_all_programs(programs_own); }
ddp_case(collectives_are_the_same_for_all_programs) { expect_the_same_for_all_programs(collectives); }
ddp_case(batch_norm_is_the_same_for_all_programs) { expect_the_same_for_all_programs(batch_norm); }
