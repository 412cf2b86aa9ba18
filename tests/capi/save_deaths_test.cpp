// SPDX-License-Identifier: Apache-2.0
// Ranks that die or sleep within a save: which error each rank gets and how soon, that no half file is left, and that the
// others continue in their processes.

#include "ddp/experimental.h"
#include "support/check.hpp"
#include "support/defaults.hpp"
#include "support/group_procs.hpp"

constexpr int64_t kValues = 3'000'000;  // 36 MB with Adam's moments: many chunks

void must(ddp_status status) {
  if (status != DDP_OK) throw Error(status, ddp_last_error());
}

/// A file of a step that is being written is in the folder.
bool is_writing(const std::string& folder, const std::string& step) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".tmp") && name.find(step) != std::string::npos) return true;
  }
  return false;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// One rank of a training that saves into a folder.
class Saver : NotCopied {
 public:
  Saver(const Folder& meeting, int rank, int size, bool shard) : values_(kValues, 1.0F) {
    auto options = defaults<ddp_group_options>();
    options.rank = rank;
    options.world_size = size;
    options.recoverable = 1;
    options.heartbeat_ms = 100;
    options.dead_after_ms = 1'500;
    must(ddp_group_create(("file://" + meeting.path() + "/meet").c_str(), &options, &group_));
    must(ddp_model_create(group_, nullptr, &model_));
    must(ddp_model_add_array(model_, "w", values_.data(), nullptr, kValues, nullptr));
    auto how = defaults<ddp_optimizer_options>();
    how.shard = shard ? 1 : 0;
    must(ddp_optimizer_create_adam(model_, nullptr, &how, &optimizer_));
    must(ddp_model_commit(model_, nullptr));
    must(ddp_state_init(&state_, sizeof state_));
    state_.model = model_;
    state_.optimizer = optimizer_;
  }
  ~Saver() {
    ddp_optimizer_destroy(optimizer_);
    ddp_model_destroy(model_);
    ddp_group_destroy(group_);
  }

  void train() {
    ddp_tensor grad;
    must(ddp_model_begin_backward(model_, DDP_PASS_REDUCE));
    must(ddp_model_get_grad(model_, 0, &grad));
    for (int64_t i = 0; i < kValues; ++i) static_cast<float*>(grad.data)[i] = static_cast<float>(i % 7 - 3);
    must(ddp_model_mark_ready(model_, 0, nullptr));
    must(ddp_model_end_backward(model_, nullptr));
    must(ddp_optimizer_step(optimizer_, nullptr));
  }
  ddp_status save(const std::string& folder, int64_t step) {
    state_.step = step;
    return ddp_state_save_latest(&state_, folder.c_str(), 0);
  }
  int64_t load(const std::string& folder) {
    ddp_load_report report{};
    report.struct_size = sizeof report;
    must(ddp_state_load_latest(&state_, folder.c_str(), nullptr, &report));
    return report.step;
  }
  ddp_recovery recover() {
    ddp_recovery found{};
    found.struct_size = sizeof found;
    must(ddp_group_recover(group_, nullptr, &found));
    return found;
  }
  void barrier() { must(ddp_group_barrier(group_)); }
  void check_equal() { must(ddp_model_check_replicas(model_, nullptr)); }

 private:
  std::vector<float> values_;
  ddp_group* group_ = nullptr;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  ddp_state state_{};
};

/// As soon as a file of this step is being written, this process gets the signal.
std::jthread signal_when_writing(const std::string& folder, const std::string& step, int number) {
  return std::jthread([folder, step, number](const std::stop_token& stop) {
    while (!is_writing(folder, step) && !stop.stop_requested()) std::this_thread::yield();
    if (!stop.stop_requested()) (void)kill(getpid(), number);
  });
}

const std::string kFirst = "step-000000000001.safetensors", kSecond = "step-000000000002.safetensors",
                  kThird = "step-000000000003.safetensors", kLock = ".ddp-folder.lock";

ddp_case(a_rank_that_dies_in_a_sharded_save_is_named_and_the_others_go_on) {
  for (const int victim : {0, 1, 2}) {
    const Folder meeting, folder;
    Procs procs(3, [&](int rank, Reporter& report) {
      Saver saver(meeting, rank, 3, true);
      saver.train();
      must(saver.save(folder.path(), 1));
      saver.train();
      std::jthread death;
      if (rank == victim) death = signal_when_writing(folder.path(), "step-0000000000", SIGKILL);
      // A thread that gets no core while a file is written sees the next one.
      int64_t step = 2;
      ddp_status status = DDP_OK;
      std::chrono::duration<double> passed{};
      for (;; ++step) {
        const auto begin = std::chrono::steady_clock::now();
        status = saver.save(folder.path(), step);
        passed = std::chrono::steady_clock::now() - begin;
        if (status != DDP_OK || step == 50) break;
        saver.train();
      }
      if (rank == victim) throw Error(DDP_ERROR_INTERNAL, "it lives");
      const std::string text = ddp_last_error();
      expect_equal(status, DDP_ERROR_PEER_FAILED, "status: " + text);
      expect_contains(text, "rank " + std::to_string(victim) + " (");
      expect(passed.count() < 10, "in " + std::to_string(passed.count()) + " s");
      expect_equal(saver.recover().size, 2, "ranks that are left");
      report.say("recovered");
      expect_equal(saver.load(folder.path()), step - 1, "nobody has committed step " + std::to_string(step));
      saver.train();
      must(saver.save(folder.path(), step));
      saver.check_equal();
      saver.barrier();
      return std::to_string(step);
    });
    const std::vector<ProcResult> results = procs.wait(60'000);
    for (int rank = 0; rank < 3; ++rank)
      expect(rank == victim ? results[static_cast<size_t>(rank)].signal == SIGKILL
                            : results[static_cast<size_t>(rank)].exit_code == 0,
             "rank " + std::to_string(rank) + ": " + results[static_cast<size_t>(rank)].describe());
    std::vector<std::string> wanted = {kLock, kFirst, kSecond};
    for (int step = 3; step <= std::stoi(results[victim == 0 ? 1 : 0].text); ++step)
      wanted.push_back((step < 10 ? "step-00000000000" : "step-0000000000") + std::to_string(step) + ".safetensors");
    expect(names_in(folder.path()) == wanted, "files, after rank " + std::to_string(victim) + " has died");
  }
}

// Rank 0 sleeps in a save, is replaced, and wakes: its save fails, and changes nothing.
ddp_case(a_rank_that_was_replaced_commits_nothing) {
  const Folder meeting, folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    Saver saver(meeting, rank, 3, false);
    saver.train();
    must(saver.save(folder.path(), 1));
    saver.train();
    std::jthread sleep;
    if (rank == 0) sleep = signal_when_writing(folder.path(), "step-000000000002", SIGSTOP);
    const ddp_status status = saver.save(folder.path(), 2);
    const std::string text = ddp_last_error();
    if (rank == 0) {
      expect(status != DDP_OK, "it has committed");
      return ddp_status_name(status) + std::string(": ") + text;
    }
    expect_equal(status, DDP_ERROR_PEER_FAILED, "status: " + text);
    expect_contains(text, "rank 0 (");
    expect_equal(saver.recover().size, 2, "ranks that are left");
    saver.train();
    must(saver.save(folder.path(), 3));  // although the sleeper still has the folder's lock
    report.say("saved");
    saver.barrier();
    return std::string();
  });
  procs.wait_for(1, "saved", 40'000);
  procs.wait_for(2, "saved", 40'000);
  procs.signal(0, SIGCONT);
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (const ProcResult& result : results) expect(result.exit_code == 0, result.describe());
  const std::vector<std::string> wanted = {kLock, kFirst, kThird};
  expect(names_in(folder.path()) == wanted, "files");
}
