// SPDX-License-Identifier: Apache-2.0
// Steps without end: a tiny model trained with every way to update, a checkpoint now and then, and samples of what each rank
// holds in memory and descriptors. Nothing may grow.
//
//   chaos.soak [steps [ranks [memory | sockets]]]      12,000 steps on 2 ranks over shared memory: some seconds
//
// Each way gets its share of the steps; its first tenth is the time to warm up. Prints a line a way.
#include <dirent.h>

#include "ddp/experimental.h"
#include "support/on_processes.hpp"

using namespace ddp::test;

namespace {

constexpr int64_t kSizes[] = {7, 300, 2'000};
constexpr int64_t kSamples = 40;
constexpr int64_t kSaves = 10;      // of each way
constexpr int64_t kSlackKib = 256;  // of the allocator
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsFreed = true;  // the sanitizer, for a while; it looks for leaks itself
#else
constexpr bool kKeepsFreed = false;
#endif

struct Way {
  const char* name;
  int32_t shard, in_backward;
  bool adam;
};
constexpr Way kWays[] = {{"SGD", 0, 0, false},
                         {"Adam, sharded", 1, 0, true},
                         {"SGD in backward", 0, 1, false},
                         {"Adam, sharded, in backward", 1, 1, true}};

void must(ddp_status status) {
  if (status != DDP_OK) throw Error(status, ddp_last_error());
}

int64_t memory_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "RssAnon:") break;
  int64_t kib = 0;
  status >> kib;
  return kib;
}

int64_t descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  int64_t count = 0;
  while (folder != nullptr && readdir(folder) != nullptr) ++count;
  if (folder != nullptr) closedir(folder);
  return count;
}

class Training {
 public:
  Training(ddp_group* group, const Way& way) {
    must(ddp_model_create(group, nullptr, &model_));
    for (size_t p = 0; p < std::size(kSizes); ++p) {
      values_.emplace_back(static_cast<size_t>(kSizes[p]), 1.0F);
      const std::string name = "p" + std::to_string(p);
      must(ddp_model_add_array(model_, name.c_str(), values_.back().data(), nullptr, kSizes[p], nullptr));
    }
    ddp_optimizer_options options;
    must(ddp_optimizer_options_init(&options, sizeof options));
    options.shard = way.shard;
    options.in_backward = way.in_backward;
    if (way.adam) {
      ddp_adam_options rule;
      must(ddp_adam_options_init(&rule, sizeof rule));
      must(ddp_optimizer_create_adam(model_, &rule, &options, &optimizer_));
    } else {
      ddp_sgd_options rule;
      must(ddp_sgd_options_init(&rule, sizeof rule));
      rule.rate = 1e-3;
      rule.momentum = 0.9;
      must(ddp_optimizer_create_sgd(model_, &rule, &options, &optimizer_));
    }
    must(ddp_model_commit(model_, nullptr));
  }
  ~Training() {
    ddp_optimizer_destroy(optimizer_);
    ddp_model_destroy(model_);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void step(int64_t number) {
    must(ddp_model_begin_backward(model_, DDP_PASS_REDUCE));
    for (size_t p = std::size(kSizes); p-- > 0;) {
      ddp_tensor gradient;
      must(ddp_model_get_grad(model_, static_cast<int32_t>(p), &gradient));
      auto* const data = static_cast<float*>(gradient.data);
      for (int64_t i = 0; i < kSizes[p]; ++i) data[i] = static_cast<float>((number + i) % 5 - 2);
      must(ddp_model_mark_ready(model_, static_cast<int32_t>(p), nullptr));
    }
    must(ddp_model_end_backward(model_, nullptr));
    must(ddp_optimizer_step(optimizer_, nullptr));
  }
  void save(const std::string& path) {
    ddp_state state;
    must(ddp_state_init(&state, sizeof state));
    state.model = model_;
    state.optimizer = optimizer_;
    must(ddp_state_save_file(&state, path.c_str()));
  }

 private:
  std::vector<std::vector<float>> values_;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
};

/// Throws if something has grown.
void train(ddp_group* group, const Way& way, int64_t steps, const std::string& path) {
  Training training(group, way);
  std::vector<int64_t> memory, open;
  for (int64_t step = 0; step < steps; ++step) {
    training.step(step);
    if (step % (steps / kSaves) == 0) training.save(path);
    if (step < steps / 10 || step % std::max<int64_t>(1, steps / kSamples) != 0) continue;
    memory.push_back(memory_kib());
    open.push_back(descriptors());
  }
  const auto half = static_cast<std::ptrdiff_t>(memory.size() / 2);
  const int64_t before = *std::max_element(memory.begin(), memory.begin() + half);
  const int64_t after = *std::max_element(memory.begin() + half, memory.end());
  if (ddp_group_get_rank(group) == 0)
    std::printf("%-28s %9lld steps: %lld KiB, then at most %lld KiB; %lld descriptors\n", way.name,
                static_cast<long long>(steps), static_cast<long long>(memory.front()), static_cast<long long>(after),
                static_cast<long long>(open.back()));
  std::fflush(stdout);
  expect(kKeepsFreed || after <= before + before / 50 + kSlackKib,
         std::string(way.name) + ": memory grew from " + std::to_string(before) + " to " + std::to_string(after) + " KiB");
  expect(*std::max_element(open.begin(), open.end()) == open.front(), std::string(way.name) + ": descriptors grew");
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 12'000;
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  const bool sockets = argc > 3 && std::string(argv[3]) == "sockets";
  if (sockets && !gloo_is_there()) return 77;
  const Folder folder;
  Procs procs(ranks, [&](int rank, Reporter&) {
    ddp_group_options options;
    must(ddp_group_options_init(&options, sizeof options));
    options.backend = sockets ? DDP_BACKEND_GLOO : DDP_BACKEND_SHM;
    options.rank = rank;
    options.world_size = ranks;
    ddp_group* group = nullptr;
    must(ddp_group_create(("file://" + folder.path() + "/meet").c_str(), &options, &group));
    for (const Way& way : kWays) train(group, way, steps / static_cast<int64_t>(std::size(kWays)), folder.path() + "/saved");
    ddp_group_destroy(group);
  });
  int failed = 0;
  for (const ProcResult& result : procs.wait(INT64_C(1) << 40)) {
    if (result.exit_code == 0) continue;
    std::printf("%s\n", result.describe().c_str());
    ++failed;
  }
  return failed == 0 ? 0 : 1;
}
