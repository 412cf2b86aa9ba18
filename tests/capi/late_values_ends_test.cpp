// SPDX-License-Identifier: Apache-2.0
// Values that come late, and a rank that exits, dies or joins while they are under way: what has come is right, what will
// not come fails. The oracle is one rank that makes the same steps: gradients are the same on all ranks.

#include "support/check.hpp"
#include "support/no_gloo.hpp"
#include "support/on_processes.hpp"
#include "support/public_api.hpp"

constexpr int64_t kSmall = 5'000, kLarge = 200'000, kHuge = 16'000'000;

struct Plan {
  std::string place = "local://alone";
  Hosts hosts = Hosts::kShared;
  int32_t ranks = 1;
  bool recoverable = false;
  int64_t large = kLarge;
};

/// Two parameters and Adam; the smaller one is used first, so its value comes first.
class Training : NotCopied {
 public:
  Training(const Plan& plan, int32_t rank, bool joins = false) : large_(static_cast<size_t>(plan.large)) {
    if (plan.hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank % 2).c_str(), 1);
    ddp_group_options options = patient_options(joins ? -1 : rank, joins ? -1 : plan.ranks);
    if (plan.ranks > 1) options.backend = options_on(plan.hosts).backend;
    options.recoverable = plan.recoverable ? 1 : 0;
    options.join = joins ? 1 : 0;
    options.heartbeat_ms = 100;
    group = create_group(plan.place, options);
    OK(ddp_model_create(group, nullptr, &model));
    add("first", first_);
    add("last", large_);
    auto late = defaults<ddp_optimizer_options>();
    late.shard = late.late_values = plan.ranks > 1 ? 1 : 0;
    OK(ddp_optimizer_create_adam(model, nullptr, &late, &adam));
  }
  ~Training() {
    ddp_optimizer_destroy(adam);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }

  void commit() const { OK(ddp_model_commit(model, nullptr)); }
  [[nodiscard]] ddp_status step(int64_t number) const {
    if (const ddp_status status = ddp_model_begin_backward(model, DDP_PASS_REDUCE); status != DDP_OK) return status;
    for (const int32_t index : {1, 0}) {
      ddp_tensor grad;
      OK(ddp_model_get_grad(model, index, &grad));
      for (int64_t i = 0; i < grad.shape[0]; ++i)
        static_cast<float*>(grad.data)[i] = static_cast<float>((number + i) % 7) - 2;
      if (const ddp_status status = ddp_model_mark_ready(model, index, nullptr); status != DDP_OK) return status;
    }
    if (const ddp_status status = ddp_model_end_backward(model, nullptr); status != DDP_OK) return status;
    return ddp_optimizer_step(adam, nullptr);
  }
  [[nodiscard]] ddp_status keep() const {
    auto state = defaults<ddp_state>();
    state.model = model;
    state.optimizer = adam;
    return ddp_state_keep(&state, 1, nullptr);
  }
  [[nodiscard]] int64_t steps() const {
    int64_t count = 0;
    OK(ddp_optimizer_get_step_count(adam, &count));
    return count;
  }
  /// Of the values. Waits for them.
  [[nodiscard]] std::string hash() const {
    OK(ddp_model_wait_values(model));
    int64_t hash = 0;
    OK(ddp_model_get_hash(model, &hash));
    return std::to_string(hash);
  }

  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* adam = nullptr;

 private:
  void add(const char* name, std::vector<float>& value) const {
    OK(ddp_model_add_array(model, name, value.data(), nullptr, static_cast<int64_t>(value.size()), nullptr));
  }
  std::vector<float> first_ = std::vector<float>(kSmall, 1.0F);
  std::vector<float> large_;
};

std::string replay(int64_t steps) {
  Training alone(Plan(), 0);
  alone.commit();
  for (int64_t number = 0; number < steps; ++number) OK(alone.step(number));
  return alone.hash();
}

std::vector<Hosts> all_hosts() {
  return no_gloo() ? std::vector<Hosts>{Hosts::kShared} : std::vector<Hosts>{Hosts::kShared, Hosts::kGloo, Hosts::kSeveral};
}

void expect_ended(const ProcResult& result, const std::string& said) {
  expect(result.exit_code == 0 && result.signal == 0, result.describe());
  expect(result.said == (said.empty() ? "" : said + "\n"), result.said + " for " + said);
}

/// exit() gives what it has posted before it says goodbye.
ddp_case(a_rank_that_exits_behind_its_step_gives_its_values) {
  constexpr int64_t kSteps = 4;
  const std::string wanted = replay(kSteps);
  for (const Hosts hosts : all_hosts())
    for (int32_t exits = 0; exits < 4; ++exits) {  // 3: all of them
      const Folder folder;
      Procs procs(3, [&](int rank, Reporter& report) {
        auto* const training = new Training({"file://" + folder.path() + "/meet", hosts, 3}, rank);
        training->commit();
        for (int64_t number = 0; number < kSteps; ++number) OK(training->step(number));
        if (rank == exits || exits == 3) exit(0);
        report.say(training->hash());
        delete training;
      });
      const std::vector<ProcResult> results = procs.wait(60'000);
      for (int32_t rank = 0; rank < 3; ++rank)
        expect_ended(results[static_cast<size_t>(rank)], rank == exits || exits == 3 ? "" : wanted);
    }
}

/// With a guard the first value is in memory of the library until it is waited for, and lost with it.
ddp_case(behind_a_failure_no_guarded_value_is_taken_for_new) {
  setenv("DDP_GUARD_VALUES", "1", 1);
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter& report) {
    Training training({"file://" + folder.path() + "/meet", Hosts::kShared, 2, false, kHuge}, rank);
    training.commit();
    OK(training.step(0));
    if (rank == 1) {
      OK(ddp_model_wait_value(training.model, 0, nullptr));
      _exit(0);
    }
    const ddp_status last = ddp_model_wait_value(training.model, 1, nullptr);
    const int32_t ready = ddp_model_value_ready(training.model, 0);
    const ddp_status first = ddp_model_wait_value(training.model, 0, nullptr);
    report.say(std::string(ddp_status_name(last)) + " " + std::to_string(ready) + " " + ddp_status_name(first));
  });
  unsetenv("DDP_GUARD_VALUES");
  const std::string failed = "DDP_ERROR_PEER_FAILED";
  const ProcResult result = procs.wait(60'000)[0];
#if defined(__SANITIZE_THREAD__)  // so slow that the other rank may have given all before it goes
  if (result.said == "DDP_OK 1 DDP_OK\n") return;
#endif
  expect_ended(result, failed + " -1 " + failed);
}

void train(Training& training, int64_t until, const std::function<void(int64_t)>& at) {
  for (int64_t number = training.steps(); number < until; number = training.steps()) {
    at(number);
    ddp_status status = training.step(number);
    if (status == DDP_OK) status = training.keep();
    while (status == DDP_ERROR_PEER_FAILED || status == DDP_ERROR_ABORTED) {
      auto options = defaults<ddp_recover_options>();
      status = ddp_group_recover(training.group, &options, nullptr);
    }
    OK(status);
  }
}

ddp_case(a_rank_joins_while_values_come) {
  constexpr int64_t kSteps = 60;
  const std::string wanted = replay(kSteps);
  for (const Hosts hosts : all_hosts()) {
    const Folder folder;
    const Plan plan{"file://" + folder.path() + "/meet", hosts, 2, true};
    const auto run = [&](int32_t rank, bool joins, const std::function<void(int64_t)>& at) {
      Training training(plan, rank, joins);
      training.commit();
      train(training, kSteps, at);
      expect_equal(ddp_group_get_size(training.group), 3, "ranks at the end");
      const std::string hash = training.hash();
      OK(ddp_group_barrier(training.group));
      return hash;
    };
    Procs procs(2, [&](int rank, Reporter& report) {
      return run(rank, false, [&](int64_t number) {
        if (number == 5) report.say("begun");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      });
    });
    procs.wait_for(0, "begun");
    Procs more(1, [&](int, Reporter&) { return run(2, true, [](int64_t) {}); });
    std::vector<ProcResult> results = procs.wait(60'000);
    results.push_back(more.wait(20'000).front());
    for (const ProcResult& result : results) {
      expect(result.exit_code == 0, result.describe());
      expect(result.text == wanted, result.text + " for " + wanted);
    }
  }
}
