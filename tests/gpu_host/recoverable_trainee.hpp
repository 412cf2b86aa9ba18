// SPDX-License-Identifier: Apache-2.0
// One rank's model on a fake GPU for tests of recovery, and what ranks in host memory come to: the oracle.
#pragma once

#include "support/training.hpp"

namespace ddp::test {

enum class Grads { kProgram, kLibrary };

struct RecoverableWay {
  const char* name;
  Grads grads = Grads::kProgram;
  bool own_values = false;
  bool in_backward = false;
  bool adam = false;
  double max_norm = 0;
  bool shard = false;

  [[nodiscard]] Ways ways(Home home) const {
    Ways ways;
    ways.home = home;
    ways.shapes = {3'000, 70'000, 5};  // the second one is cut into pieces, by the number of ranks
    ways.first_bucket_bytes = 4'000;
    ways.bucket_bytes = 100'000;
    ways.unused = DDP_UNUSED_ERROR;
    ways.owned_grads = grads == Grads::kLibrary;
    ways.own_values = own_values;
    ways.in_backward = in_backward;
    ways.max_norm = max_norm;
    ways.shard = shard;
    ways.rate = adam ? 0.001 : 0.5;
    ways.momentum = 0.5;
    return ways;
  }
};

struct RecoverableTrainee : Training {
  RecoverableTrainee(group::Group& of, const RecoverableWay& way, Home home = Home::kGpu)
      : Training(of, way.adam ? Rule::kAdamW : Rule::kMomentum, way.ways(home)) {
    model->replicas().keep_equal(optimizer);
  }
  ~RecoverableTrainee() {
    optimizers.clear();
    optimizer.reset();
    model->close();
    model.reset();
  }
  /// Means are exact for 1, 2 and 3 ranks.
  void fill(int rank, int step) const {
    for (size_t k = 0; k < size(); ++k)
      Training::fill(k, [&](size_t, int64_t i) { return static_cast<double>((i + 3 * step) % 8 + rank * 12); });
  }
  void pass(int rank, int step) const {
    fill(rank, step);
    reduce();
  }
  void train(int rank, int number) const {
    pass(rank, number);
    step();
  }
  [[nodiscard]] std::vector<const void*> addresses() const {
    std::vector<const void*> all;
    for (size_t k = 0; k < size(); ++k) all.insert(all.end(), {value(k).data, grad(k).data});
    return all;
  }
};

/// The result of ranks in host memory: each stage has a number of ranks and a number of steps. State goes from one to the
/// next by hand.
inline std::string oracle(const RecoverableWay& way, const std::vector<std::pair<int, int>>& stages) {
  std::string values;
  std::vector<std::vector<std::byte>> kept;  // values, and the state of the optimizer
  std::map<std::string, std::string> fields;
  int step = 0;
  for (const auto& [size, steps] : stages) {
    const auto begin = std::exchange(kept, {});
    run_groups(size, [&, count = steps](group::Group& group, int rank) {
      RecoverableTrainee t(group, way, Home::kHost);
      const auto tensors = [&t] {  // the state moves with each step in backward
        std::vector<Tensor> all;
        for (size_t k = 0; k < t.size(); ++k) all.push_back(t.value(k));
        for (const model::StateTensor& each : t.optimizer->state_tensors()) all.push_back(each.tensor);
        return all;
      };
      for (size_t k = 0; k < begin.size(); ++k) t.write(tensors()[k], begin[k]);
      if (!begin.empty()) t.optimizer->load_fields(fields);
      group.barrier();
      for (int made = 0; made < count; ++made) t.train(rank, step + made);
      group.barrier();
      if (rank != 0) return;
      values = t.bytes();
      for (const Tensor& each : tensors()) kept.push_back(t.read(each));
      fields = t.optimizer->state_fields();
    });
    step += steps;
  }
  return values;
}

}  // namespace ddp::test
