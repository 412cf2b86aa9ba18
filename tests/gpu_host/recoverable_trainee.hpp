// SPDX-License-Identifier: Apache-2.0
// One rank's model on a fake GPU for tests of recovery, or in host memory, and what ranks in host memory come to: the
// oracle. Gradients are whole numbers whose means are exact for 1, 2 and 3 ranks.
#pragma once

#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "optim/adam.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "parts/model_pass.hpp"
#include "support/gpu_world.hpp"

namespace ddp::test {

inline constexpr int64_t kCounts[] = {3'000, 70'000, 5};  // the second one is cut into pieces, by the number of ranks
inline constexpr size_t kParameters = std::size(kCounts);

enum class Grads { kProgram, kLibrary };

struct RecoverableWay {
  const char* name;
  Grads grads = Grads::kProgram;
  bool own_values = false;
  bool in_backward = false;
  bool adam = false;
  double max_norm = 0;
  bool shard = false;
};

/// One rank's model, on the GPU or (of the oracle) in host memory.
struct RecoverableTrainee {
  RecoverableTrainee(std::shared_ptr<group::Group> of, const RecoverableWay& way, int32_t gpu)
      : group(std::move(of)), device(gpu) {
    if (device >= 0) stream.emplace(device);
    ddp_model_options options{.first_bucket_bytes = 4'000, .bucket_bytes = 100'000, .own_values = way.own_values ? 1 : 0};
    model = std::make_shared<model::Model>(group, options);
    for (size_t p = 0; p < kParameters; ++p) {
      const std::vector<float> first(static_cast<size_t>(kCounts[p]), 1);
      const Tensor value = lend(first), grad = lend(first);
      model->add_parameter("p" + std::to_string(p), value, way.grads == Grads::kProgram ? &grad : nullptr);
    }
    model->add_buffer("running", lend({7, 8}));
    ddp_optimizer_options shared = optim::default_optimizer_options();
    shared.in_backward = way.in_backward ? 1 : 0;
    shared.max_norm = way.max_norm;
    shared.shard = way.shard ? 1 : 0;
    ddp_sgd_options sgd = optim::default_sgd_options();
    sgd.rate = sgd.momentum = 0.5;
    if (way.adam)
      optimizer = std::make_shared<optim::Adam>(model, optim::default_adam_options(), shared);
    else
      optimizer = std::make_shared<optim::Sgd>(model, sgd, shared);
    if (optimizer->in_passes() != nullptr)
      model->optimizer_slot().attach(std::shared_ptr<parts::BlockUpdate>(optimizer, optimizer->in_passes()));
    model->replicas().keep_equal(optimizer);
    model->commit(at());
  }
  ~RecoverableTrainee() {
    optimizer.reset();
    model->close();
    model.reset();
  }

  [[nodiscard]] void* at() const { return stream ? stream->get() : nullptr; }

  Tensor lend(const std::vector<float>& first) {
    const auto count = static_cast<int64_t>(first.size());
    if (device < 0) {
      in_host.push_back(std::make_unique<std::vector<float>>(first));
      return flat_tensor(in_host.back()->data(), DDP_F32, count);
    }
    there.push_back(std::make_unique<GpuArray>(device, count * 4));
    there.back()->poke(first);
    return there.back()->tensor(*group, DDP_F32);
  }

  void fill(size_t p, int step, int who) {
    const Tensor& grad = model->table().parameter(static_cast<int32_t>(p)).grad;
    std::vector<float> made(static_cast<size_t>(kCounts[p]));
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>((static_cast<int>(i) + 3 * step) % 8 + who * 12);
    if (device < 0) {
      std::copy(made.begin(), made.end(), reinterpret_cast<float*>(grad.data));
      return;
    }
    GpuArray from(device, kCounts[p] * 4);
    from.poke(made);
    write_on(at(), from, grad.data);
    stream->synchronize();
  }

  void step(int step, int who) {
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kParameters; p-- > 0;) {
      fill(p, step, who);
      model->pass().mark_ready(static_cast<int32_t>(p), at());
    }
    model->end_backward(at());
    optimizer->step(at());
  }

  /// In host memory.
  void write(size_t p, const std::vector<float>& all) const {
    std::copy(all.begin(), all.end(),
              reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).value.data));
  }
  [[nodiscard]] std::vector<float> read(const Tensor& tensor) const {
    if (device >= 0) return read_on(*stream, device, tensor.data, tensor.count);
    const auto* const data = reinterpret_cast<const float*>(tensor.data);
    return std::vector<float>(data, data + tensor.count);
  }
  [[nodiscard]] std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (size_t p = 0; p < kParameters; ++p) all.push_back(read(model->table().parameter(static_cast<int32_t>(p)).value));
    return all;
  }
  [[nodiscard]] std::vector<const void*> addresses() const {
    std::vector<const void*> all;
    for (const Parameter& each : model->table().parameters()) {
      all.push_back(each.value.data);
      all.push_back(each.grad.data);
    }
    return all;
  }

  std::shared_ptr<group::Group> group;
  const int32_t device;
  std::optional<GpuStream> stream;
  std::vector<std::unique_ptr<GpuArray>> there;
  std::vector<std::unique_ptr<std::vector<float>>> in_host;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::Optimizer> optimizer;
};

/// The result of ranks in host memory: each stage has a number of ranks and a number of steps. State goes from one to the
/// next by hand.
inline std::vector<std::vector<float>> oracle(const RecoverableWay& way, const std::vector<std::pair<int, int>>& stages) {
  static std::atomic<int> next{0};
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::byte>> state;
  std::map<std::string, std::string> fields;
  int step = 0;
  for (const auto& [size, steps] : stages) {
    const std::string place = "local://recoverable-oracle-" + std::to_string(next++);
    const std::vector<std::vector<float>> begin = std::exchange(values, {});
    const auto state_before = std::exchange(state, {});
    run_ranks(size, [&, n = size, count = steps](int rank) {
      ddp_group_options mine = world_options(rank, n);
      RecoverableTrainee t(group::Group::create(place.c_str(), mine), way, -1);
      for (size_t p = 0; p < begin.size(); ++p) t.write(p, begin[p]);
      const std::vector<model::StateTensor> tensors = t.optimizer->state_tensors();
      for (size_t k = 0; k < state_before.size(); ++k)
        std::copy(state_before[k].begin(), state_before[k].end(), tensors[k].tensor.data);
      if (!begin.empty()) t.optimizer->load_fields(fields);
      t.group->barrier();
      for (int made = 0; made < count; ++made) t.step(step + made, rank);
      t.group->barrier();
      if (rank != 0) return;
      values = t.values();
      for (const model::StateTensor& each : t.optimizer->state_tensors())
        state.emplace_back(each.tensor.data, each.tensor.data + each.tensor.bytes());
      fields = t.optimizer->state_fields();
    });
    step += steps;
  }
  return values;
}

}  // namespace ddp::test
