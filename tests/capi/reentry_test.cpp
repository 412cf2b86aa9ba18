// SPDX-License-Identifier: Apache-2.0
// A function of the program that the library has called makes calls for the same group: those that would change objects of
// the outer call return INVALID_STATE, nothing is destroyed, and the outer call continues as if no call had been
// called. And what several threads may do with one group at the same time.

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

constexpr int kRanks = 2;

enum class In { kStep, kShardedStep, kBackwardStep, kHookOfCaller, kHookOfThread, kWriter, kReader };
bool is_hook(In where) { return where == In::kHookOfCaller || where == In::kHookOfThread; }

/// A rank whose functions make calls for its own group, once.
struct Trainee : NotCopied {
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
  ddp_state state{};
  float value[8] = {1, 2, 3, 4, 5, 6, 7, 8}, grad[8] = {};
  std::map<std::string, ddp_status> answers;
  std::string text;
  bool asks = false;
  bool passes = false;  // it is asked within a pass

  Trainee(const std::string& place, int rank, In where) : group(create_group(place, patient_options(rank, kRanks))) {
    auto options = defaults<ddp_model_options>();
    options.progress = where == In::kHookOfThread ? DDP_PROGRESS_THREAD : DDP_PROGRESS_CALLER;
    OK(ddp_model_create(group, &options, &model));
    const ddp_tensor v = tensor(value), g = tensor(grad);
    OK(ddp_model_add_parameter(model, "weights", &v, &g, nullptr));
    if (is_hook(where)) OK(ddp_model_set_hook(model, hook, this, nullptr));
    auto shared = defaults<ddp_optimizer_options>();
    shared.shard = where == In::kShardedStep ? 1 : 0;
    shared.in_backward = where == In::kBackwardStep ? 1 : 0;
    OK(ddp_optimizer_create_custom(model, nullptr, &shared, nullptr, update, this, nullptr, &optimizer));
    OK(ddp_model_commit(model, nullptr));
    OK(ddp_state_init(&state, sizeof state));
    state.model = model;
    state.optimizer = optimizer;
  }
  ~Trainee() {
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }
  static ddp_tensor tensor(float* data) { return ddp_tensor{data, DDP_F32, DDP_CPU, 0, 1, {8}}; }

  void step() {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (float& element : grad) element = 1;
    OK(ddp_model_mark_ready(model, 0, nullptr));
    OK(ddp_model_end_backward(model, nullptr));
    OK(ddp_optimizer_step(optimizer, nullptr));
  }
  void ask(const char* what, ddp_status status) {
    answers[what] = status;
    if (status != DDP_OK) text = ddp_last_error();
  }
  void call_all() {
    if (!asks) return;
    asks = false;
    const ddp_tensor given = tensor(value);
    ask("barrier", ddp_group_barrier(group));
    ask("all_reduce", ddp_group_all_reduce(group, &given, DDP_SUM, nullptr));
    ask("split", ddp_group_split(group, 0, 0, nullptr, nullptr));
    ask("start_trace", ddp_group_start_trace(group, "/nowhere/trace", nullptr));
    ask("stop_trace", ddp_group_stop_trace(group));
    ask("begin_backward", ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    ask("end_backward", ddp_model_end_backward(model, nullptr));
    ask("mark_ready", ddp_model_mark_ready(model, 0, nullptr));
    ask("step", ddp_optimizer_step(optimizer, nullptr));
    ask("check", ddp_model_check_replicas(model, nullptr));
    ask("commit", ddp_model_commit(model, nullptr));
    ask("save", ddp_state_save(&state, write, this));
    ask("load", ddp_state_load(&state, read, this, nullptr, nullptr));
    if (passes) ddp_model_destroy(model);
    ddp_group_destroy(group);
  }
  static int32_t update(void* user_data, const ddp_update_slice* slice) {
    static_cast<Trainee*>(user_data)->call_all();
    for (int64_t i = 0; i < slice->count; ++i)
      static_cast<float*>(slice->value)[i] -= static_cast<const float*>(slice->grad)[i];
    return 0;
  }
  static int32_t hook(void* user_data, ddp_bucket* bucket) {
    static_cast<Trainee*>(user_data)->call_all();
    ddp_tensor contents;
    ddp_group* group = nullptr;
    if (ddp_bucket_get_contents(bucket, &contents) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
    return ddp_group_all_reduce(group, &contents, DDP_AVERAGE, nullptr);
  }
  std::string file;
  size_t at = 0;
  static int32_t write(void* user_data, const void* data, int64_t bytes) {
    auto& self = *static_cast<Trainee*>(user_data);
    self.call_all();
    self.file.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
    return 0;
  }
  static int64_t read(void* user_data, void* data, int64_t capacity) {
    auto& self = *static_cast<Trainee*>(user_data);
    self.call_all();
    const size_t count = self.file.copy(static_cast<char*>(data), static_cast<size_t>(capacity), self.at);
    self.at += count;
    return static_cast<int64_t>(count);
  }
};

void calls_inside_a_function_of_the_program_are_refused(In where) {
  const std::string place = "local://inside-" + std::to_string(static_cast<int>(where));
  std::atomic<int> asked{0};
  run_ranks(kRanks, [&](int rank) {
    Trainee trainee(place, rank, where);
    trainee.passes = is_hook(where) || where == In::kBackwardStep;
    const bool is_file = where == In::kWriter || where == In::kReader;
    trainee.asks = where == In::kWriter || !is_file;
    if (is_file) OK(ddp_state_save(&trainee.state, Trainee::write, &trainee));
    if (where == In::kReader) trainee.asks = true;
    if (is_file) OK(ddp_state_load(&trainee.state, Trainee::read, &trainee, nullptr, nullptr));
    trainee.step();
    expect_equal(trainee.value[7], 7.0F, "one step was made");
    if (!trainee.asks) asked += trainee.answers.empty() ? 0 : 1;
    for (const auto& [what, status] : trainee.answers)
      expect(status == DDP_ERROR_INVALID_STATE, what + ": " + ddp_status_name(status));
    if (!trainee.answers.empty()) expect_contains(trainee.text, "inside a function that libddp has called");
    trainee.asks = false;
    OK(ddp_group_barrier(trainee.group));
    OK(ddp_model_check_replicas(trainee.model, nullptr));
    trainee.step();
    expect_equal(trainee.value[7], 6.0F, "it goes on");
  });
  expect(asked.load() >= 1, "some rank has asked");
}

/// A function for one group may use another one.
ddp_case(another_group_is_free) {
  run_ranks(1, [&](int) {
    ddp_group* second = create_group("local://second", patient_options(0, 1));
    ddp_group* first = create_group("local://first", patient_options(0, 1));
    float value[8] = {}, grad[8] = {};
    ddp_model* model = nullptr;
    ddp_optimizer* optimizer = nullptr;
    OK(ddp_model_create(first, nullptr, &model));
    const ddp_tensor v = Trainee::tensor(value), g = Trainee::tensor(grad);
    OK(ddp_model_add_parameter(model, "weights", &v, &g, nullptr));
    const ddp_update_fn barrier = [](void* group, const ddp_update_slice*) -> int32_t {
      return ddp_group_barrier(static_cast<ddp_group*>(group));
    };
    OK(ddp_optimizer_create_custom(model, nullptr, nullptr, nullptr, barrier, second, nullptr, &optimizer));
    OK(ddp_model_commit(model, nullptr));
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    OK(ddp_model_mark_ready(model, 0, nullptr));
    OK(ddp_model_end_backward(model, nullptr));
    OK(ddp_optimizer_step(optimizer, nullptr));
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
    ddp_group_destroy(first);
    ddp_group_destroy(second);
  });
}

/// Marks come from several threads while others look at the group, and groups of different threads know nothing of each
/// other. Under the thread sanitizer this shows races.
ddp_case(threads_share_what_the_header_lets_them_share) {
  constexpr int kThreads = 4, kSteps = 50;
  run_ranks(kRanks, [&](int rank) {
    ddp_group* group = create_group("local://threads", patient_options(rank, kRanks));
    ddp_model* model = nullptr;
    OK(ddp_model_create(group, nullptr, &model));
    std::vector<std::vector<float>> values(kThreads, std::vector<float>(100)), grads = values;
    for (int i = 0; i < kThreads; ++i)
      OK(ddp_model_add_array(model, ("w" + std::to_string(i)).c_str(), values[static_cast<size_t>(i)].data(),
                             grads[static_cast<size_t>(i)].data(), 100, nullptr));
    OK(ddp_model_commit(model, nullptr));
    std::atomic<bool> ends{false};
    std::thread looks([&] {
      while (!ends) {
        expect(ddp_group_status(group) == DDP_OK && ddp_group_get_size(group) == kRanks, "the group is whole");
        std::this_thread::yield();
      }
    });
    std::thread alone([&, rank] {
      ddp_group* own = create_group("local://own-" + std::to_string(rank), patient_options(0, 1));
      while (!ends) OK(ddp_group_barrier(own));
      ddp_group_destroy(own);
    });
    for (int step = 1; step <= kSteps; ++step) {
      OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
      std::vector<std::thread> marks;
      for (int i = 0; i < kThreads; ++i)
        marks.emplace_back([&, i] {
          for (float& element : grads[static_cast<size_t>(i)]) element = static_cast<float>(step * (i + 1 + 2 * rank));
          OK(ddp_model_mark_ready(model, i, nullptr));
        });
      for (std::thread& mark : marks) mark.join();
      OK(ddp_model_end_backward(model, nullptr));
      for (int i = 0; i < kThreads; ++i)
        expect_equal(grads[static_cast<size_t>(i)][99], static_cast<float>(step * (i + 2)), "the mean");
    }
    ends = true;
    looks.join();
    alone.join();
    ddp_model_destroy(model);
    OK(ddp_group_barrier(group));
    ddp_group_destroy(group);
  });
}

/// One thread waits for a rank that does not come, another one ends that.
ddp_case(a_thread_ends_what_another_one_waits_in) {
  run_ranks(kRanks, [&](int rank) {
    ddp_group* group = create_group("local://abort", patient_options(rank, kRanks));
    if (rank == 0) {
      std::thread ends([&] { OK(ddp_group_abort(group, "enough")); });
      expect(ddp_group_barrier(group) == DDP_ERROR_ABORTED, "the barrier is over");
      expect_contains(ddp_last_error(), "enough");
      ends.join();
    } else {
      while (ddp_group_status(group) == DDP_OK) std::this_thread::yield();
      expect(ddp_group_barrier(group) == DDP_ERROR_ABORTED, "the other rank knows");
    }
    ddp_group_destroy(group);
  });
}

ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kStep));
ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kShardedStep));
ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kBackwardStep));
ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kHookOfCaller));
ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kHookOfThread));
ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kWriter));
ddp_case_of(calls_inside_a_function_of_the_program_are_refused(In::kReader));
