// SPDX-License-Identifier: Apache-2.0
// A rank is stopped while it works on the others' shared memory; they give their group up, use that memory on with another
// group, and then it continues. Its later writes reach no rank, in any memory and after any action of the rank.

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

constexpr int kRanks = 3, kStopped = 2, kTrials = 2;
constexpr int64_t kCount = int64_t{8} << 20;  // floats: a sum takes some 10 ms, mostly in others' memory
constexpr float kNew = -7;                    // what the others put there then

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void await_file(const std::string& path) {
  wait_until([&] { return std::filesystem::exists(path); });
}

enum class Kind {
  kShared,      // memory of the program, shared where it is; the group is not destroyed
  kAlloc,       // memory of ddp_group_alloc in sums; the group is not destroyed
  kGradient,    // a gradient of libddp, retained; model and group are destroyed
  kModel,       // the same; the group is destroyed, the model is not
  kValues,      // values of libddp, retained; sharded steps
  kInBackward,  // values of libddp; sharded steps within the pass
};

/// A rank that works on memory in the reach of the others, again and again.
struct Worker {
  Worker(const Folder& folder, Kind its_kind, int rank) : kind(its_kind) {
    ddp_group_options options = patient_options(rank, kRanks);
    options.timeout_ms = 3'000;
    options.dead_after_ms = 60'000;  // so that it is the limit that ends the wait
    group = create_group("file://" + folder.path() + "/meet", options);
    if (kind == Kind::kShared) {
      memory = values.data();
      OK(ddp_group_share(group, memory, kCount * 4));
      return;
    }
    if (kind == Kind::kAlloc) {
      void* given = nullptr;
      OK(ddp_group_alloc(group, kCount * 4, &given));
      memory = static_cast<float*>(given);
      std::fill_n(memory, kCount, 1.0F);
      return;
    }
    const bool with_step = kind == Kind::kValues || kind == Kind::kInBackward;
    auto model_options = defaults<ddp_model_options>();
    model_options.own_values = with_step ? 1 : 0;
    OK(ddp_model_create(group, &model_options, &model));
    OK(ddp_model_add_array(model, "w", values.data(), nullptr, kCount, nullptr));
    if (with_step) {
      auto shared = defaults<ddp_optimizer_options>();
      shared.shard = 1;
      shared.in_backward = kind == Kind::kInBackward ? 1 : 0;
      OK(ddp_optimizer_create_sgd(model, nullptr, &shared, &sgd));
    }
    OK(ddp_model_commit(model, nullptr));
    ddp_tensor tensor;
    OK(with_step ? ddp_model_get_value(model, 0, &tensor) : ddp_model_get_grad(model, 0, &tensor));
    memory = static_cast<float*>(tensor.data);
    if (kind != Kind::kModel) OK(ddp_memory_retain(memory));
  }
  /// DDP_OK as long as all ranks come.
  ddp_status work() const {
    if (kind == Kind::kAlloc || kind == Kind::kShared) {
      const ddp_tensor tensor = {memory, DDP_F32, DDP_CPU, 0, 1, {kCount}};
      return ddp_group_all_reduce(group, &tensor, DDP_AVERAGE, nullptr);
    }
    ddp_status status = ddp_model_begin_backward(model, DDP_PASS_REDUCE);
    if (status == DDP_OK) status = ddp_model_mark_ready(model, 0, nullptr);
    if (status == DDP_OK) status = ddp_model_end_backward(model, nullptr);
    if (status == DDP_OK && sgd != nullptr) status = ddp_optimizer_step(sgd, nullptr);
    return status;
  }
  void give_up() {
    if (kind == Kind::kAlloc || kind == Kind::kShared) return;
    ddp_optimizer_destroy(sgd);
    if (kind != Kind::kModel) ddp_model_destroy(model);
    ddp_group_destroy(group);
  }

  Kind kind;
  std::vector<float> values = std::vector<float>(kCount, 1.0F);
  float* memory = nullptr;
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* sgd = nullptr;
};

std::string go_on(const Folder& folder, Worker& worker, int rank, Reporter& report) {
  while (worker.work() == DDP_OK) {
  }
  const std::string cause = ddp_last_error();
  worker.give_up();
  const bool is_own = worker.kind == Kind::kShared;  // of the program, so it is out of reach without another call
  const auto make_next = [&] {
    return create_group("file://" + folder.path() + "/again", patient_options(rank, kRanks - 1));
  };
  ddp_group* next = is_own ? nullptr : make_next();
  std::fill_n(worker.memory, kCount, kNew);
  report.say("another group");
  await_file(folder.path() + "/woken");
  const auto changed = std::find_if(worker.memory, worker.memory + kCount, [](float each) { return each != kNew; });
  if (changed != worker.memory + kCount)
    throw std::runtime_error("element " + std::to_string(changed - worker.memory) + " is " + std::to_string(*changed) +
                             " after " + cause);
  if (is_own) {
    next = make_next();
    OK(ddp_group_share(next, worker.memory, kCount * 4));
  }
  const ddp_tensor tensor = {worker.memory, DDP_F32, DDP_CPU, 0, 1, {kCount}};
  OK(ddp_group_all_reduce(next, &tensor, DDP_SUM, nullptr));
  expect(std::all_of(worker.memory, worker.memory + kCount, [](float each) { return each == 2 * kNew; }), "the sum");
  ddp_group_destroy(next);
  return "done";
}

void stop_and_wake(Kind kind, int trial) {
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter& report) {
    Worker worker(folder, kind, rank);
    for (int i = 0; i < 3; ++i) OK(worker.work());
    report.say("works");
    if (rank != kStopped) return go_on(folder, worker, rank, report);
    while (worker.work() == DDP_OK) {
    }
    std::ofstream(folder.path() + "/woken") << "now";
    return std::string("done");
  });
  for (int rank = 0; rank < kRanks; ++rank) procs.wait_for(rank, "works", 60'000);
  sleep_ms(20 + 13 * trial);
  procs.signal(kStopped, SIGSTOP);
  for (int rank = 0; rank < kStopped; ++rank) procs.wait_for(rank, "another group", 60'000);
  procs.signal(kStopped, SIGCONT);
  int rank = 0;
  for (const ProcResult& result : procs.wait(60'000)) {
    expect(result.exit_code == 0,
           "kind " + std::to_string(static_cast<int>(kind)) + ", rank " + std::to_string(rank) + ": " + result.describe());
    ++rank;
  }
}

ddp_case(a_rank_that_goes_on_reaches_nothing_that_is_still_used) {
  for (const Kind kind : {Kind::kShared, Kind::kAlloc, Kind::kGradient, Kind::kModel, Kind::kValues, Kind::kInBackward})
    for (int trial = 0; trial < (kind == Kind::kShared ? 3 * kTrials : kTrials); ++trial) stop_and_wake(kind, trial);
}
