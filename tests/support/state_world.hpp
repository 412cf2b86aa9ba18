// SPDX-License-Identifier: Apache-2.0
// A small model with one tensor of each kind, an optimizer whose state is easy to check, and all that is needed to save and
// load them.
#pragma once

#include "checkpoint/state.hpp"
#include "model/model.hpp"
#include "model/replica_state.hpp"
#include "support/file_faults.hpp"
#include "support/group_world.hpp"

namespace ddp::test {

/// One state tensor for each parameter, and one field. Refuses fields while `refuses`.
class PlainOptimizer final : public model::ReplicaState {
 public:
  explicit PlainOptimizer(std::shared_ptr<model::Model> model, const char* kind = "plain")
      : model_(std::move(model)), kind_(kind) {}
  const char* kind() const noexcept override { return kind_; }
  std::vector<model::StateTensor> state_tensors() override {
    const Parameters& table = model_->table();
    averages.resize(static_cast<size_t>(table.parameter_count()));
    std::vector<model::StateTensor> tensors;
    for (int32_t i = 0; i < table.parameter_count(); ++i) {
      auto& average = averages[static_cast<size_t>(i)];
      average.resize(static_cast<size_t>(table.parameter(i).value.count));
      Tensor tensor = table.parameter(i).value;
      tensor.dtype = DDP_F32;
      tensor.data = reinterpret_cast<std::byte*>(average.data());
      tensors.push_back({table.parameter(i).name + ".exp_avg", tensor});
    }
    return tensors;
  }
  std::map<std::string, std::string> state_fields() const override { return {{"steps", std::to_string(steps)}}; }
  void load_fields(const std::map<std::string, std::string>& fields) override {
    if (refuses) throw Error(DDP_ERROR_MISMATCH, "the optimizer refuses");
    const auto found = fields.find("steps");
    if (found == fields.end()) throw Error(DDP_ERROR_MISMATCH, "the field steps is missing");
    steps = std::stoll(found->second);
  }
  int64_t optimizer_steps() const override { return steps; }

  std::vector<std::vector<float>> averages;
  int64_t steps = 0;
  bool refuses = false;

 private:
  std::shared_ptr<model::Model> model_;
  const char* kind_;
};

inline ddp_model_options state_model_options() { return {.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20}; }

/// Not owned: the group lives as long as the test's body.
inline std::shared_ptr<group::Group> borrowed(group::Group& group) { return {std::shared_ptr<void>(), &group}; }

struct StateWorld {
  explicit StateWorld(group::Group& group, int64_t width = 6)
      : weight(static_cast<size_t>(width)), model(std::make_shared<model::Model>(borrowed(group), state_model_options())) {
    model->add_parameter("layer.weight", flat_tensor(weight.data(), DDP_F32, width), nullptr);
    model->add_parameter("ddp:odd", flat_tensor(odd.data(), DDP_F64, 3), nullptr);
    model->add_buffer("seen", flat_tensor(seen.data(), DDP_U8, 5));
    model->add_buffer("none", flat_tensor(nullptr, DDP_I64, 0));
    optimizer = std::make_unique<PlainOptimizer>(model);
    (void)optimizer->state_tensors();
  }

  /// Every value from the seed, different everywhere.
  void fill(int seed) {
    int next = seed * 1000;
    for (float& value : weight) value = static_cast<float>(next++);
    for (double& value : odd) value = next++;
    for (auto& value : seen) value = static_cast<uint8_t>(next++);
    for (auto& average : optimizer->averages)
      for (float& value : average) value = static_cast<float>(next++);
    optimizer->steps = next++;
    model->checkpoint_info().metadata = {{"note", "seed " + std::to_string(seed)}};
  }

  /// Everything that a load changes, as one text.
  [[nodiscard]] std::string content() const {
    std::string text(reinterpret_cast<const char*>(weight.data()), weight.size() * sizeof(float));
    text.append(reinterpret_cast<const char*>(odd.data()), odd.size() * sizeof(double));
    text.append(reinterpret_cast<const char*>(seen.data()), seen.size());
    for (const auto& average : optimizer->averages)
      text.append(reinterpret_cast<const char*>(average.data()), average.size() * sizeof(float));
    return text + std::to_string(optimizer->steps) + model->checkpoint_info().metadata.at("note");
  }

  [[nodiscard]] checkpoint::Parts parts() const { return {*model, optimizer.get(), nullptr}; }
  void save(const std::string& path) const {
    checkpoint::save_file("save", parts(), {7, 1234567890123}, path, std::nullopt);
  }
  checkpoint::Counters load(const std::string& path) const {
    return checkpoint::load_file("load", parts(), path, std::nullopt);
  }

  std::vector<float> weight;
  std::vector<double> odd = std::vector<double>(3);
  std::vector<uint8_t> seen = std::vector<uint8_t>(5);
  std::shared_ptr<model::Model> model;
  std::unique_ptr<PlainOptimizer> optimizer;
};

/// A file saved by one rank with seed 1; its bytes.
inline std::string saved_file(const std::string& path) {
  run_groups(1, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(1);
    world.save(path);
  });
  return read_whole(path);
}

inline std::string content_of_seed(int seed) {
  std::string content;
  run_groups(1, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(seed);
    content = world.content();
  });
  return content;
}

/// Texts from all ranks, which must be one and the same.
class Texts {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.insert(text);
  }
  [[nodiscard]] std::string one() const {
    expect_equal(texts_.size(), 1U, "different texts on the ranks");
    return *texts_.begin();
  }

 private:
  std::mutex mutex_;
  std::set<std::string> texts_;
};

/// A load of `path` on `size` ranks must fail everywhere in the same way and change nothing; gives the text.
inline std::string refused_load(int size, const std::string& path, ddp_status status) {
  Texts texts;
  run_groups(size, [&](group::Group& group, int rank) {
    StateWorld world(group);
    world.fill(10 + rank);
    const std::string before = world.content();
    texts.add(expect_error(status, [&] { (void)world.load(path); }));
    expect(world.content() == before, "something was touched");
    group.barrier();  // the group still works
  });
  return texts.one();
}

}  // namespace ddp::test
