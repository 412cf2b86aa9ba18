// SPDX-License-Identifier: Apache-2.0
// A model of many kinds of tensors with an optimizer whose moments are easy to check, in any memory, and its
// checkpoints.
#pragma once

#include "checkpoint/state.hpp"
#include "model/replica_state.hpp"
#include "support/mixed_model.hpp"

namespace ddp::test {

/// One moment for each parameter, in the parameter's memory; those of "large" in parts, a slice on each rank, if asked for.
class MomentOptimizer final : public model::ReplicaState {
 public:
  MomentOptimizer(MixedModel& world, int rank, int size, bool sharded)
      : world_(world), rank_(rank), size_(size), sharded_(sharded) {
    for (const Lent& each : world.all())
      if (!each.is_buffer) add(each);
  }
  const char* kind() const noexcept override { return "moments"; }
  std::vector<model::StateTensor> state_tensors() override {
    std::vector<model::StateTensor> tensors;
    for (Moment& each : moments_) {
      Tensor tensor = flat_tensor(nullptr, DDP_F32, each.count);
      tensor.data = each.on_gpu ? static_cast<std::byte*>(each.device->data()) : each.host.data();
      if (each.on_gpu) {
        const Tensor own = each.device->tensor(world_.model->group(), DDP_F32);
        tensor.device_index = own.device_index;
        tensor.device = own.device;
      }
      tensors.push_back({each.name, tensor, each.parts});
    }
    return tensors;
  }
  std::map<std::string, std::string> state_fields() const override { return {{"steps", std::to_string(steps)}}; }
  void load_fields(const std::map<std::string, std::string>& fields) override { steps = std::stoll(fields.at("steps")); }
  int64_t optimizer_steps() const override { return steps; }

  void fill(int round) {
    steps = round;
    for (size_t m = 0; m < moments_.size(); ++m) moments_[m].write(content(m, round));
  }
  void expect_filled(int round, const std::string& what) {
    expect_equal(steps, static_cast<int64_t>(round), what + ": steps");
    for (size_t m = 0; m < moments_.size(); ++m)
      expect(moments_[m].read() == content(m, round), what + ": " + moments_[m].name);
  }

  int64_t steps = 0;

 private:
  struct Moment : Lent {
    std::vector<std::vector<OwnedSpan>> parts;
    OwnedSpan own;
  };
  void add(const Lent& of) {
    Moment moment;
    moment.name = of.name + ".exp_avg";
    moment.dtype = DDP_F32;
    moment.count = of.count;
    moment.on_gpu = of.on_gpu;
    moment.own = {0, 0, of.count};
    if (sharded_ && of.name == "large") {
      const int64_t each = of.count / size_ + 1;
      for (int64_t first = 0; first < of.count; first += each)
        moment.parts.push_back({OwnedSpan{0, first, std::min(each, of.count - first)}});
      moment.parts.resize(static_cast<size_t>(size_), {OwnedSpan{}});
      moment.own = moment.parts[static_cast<size_t>(rank_)][0];
    }
    const int64_t bytes = moment.own.count * 4;
    moment.host.resize(static_cast<size_t>(bytes));
    if (moment.on_gpu) moment.device = std::make_unique<GpuArray>(rank_, bytes);
    moments_.push_back(std::move(moment));
  }
  [[nodiscard]] std::vector<std::byte> content(size_t m, int round) const {
    std::vector<float> values(static_cast<size_t>(moments_[m].own.count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((static_cast<size_t>(moments_[m].own.first) + i) % 9973) +
                  static_cast<float>(round * 100 + static_cast<int>(m));
    std::vector<std::byte> bytes(values.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  MixedModel& world_;
  int rank_, size_;
  bool sharded_;
  std::vector<Moment> moments_;
};

struct Checkpointed {
  MixedModel world;
  MomentOptimizer optimizer;

  Checkpointed(group::Group& group, int rank, Place place, bool sharded = false, int64_t large = 40'000)
      : world(group, rank, place, mixed_model_options(), large), optimizer(world, rank, group.size(), sharded) {}
  void fill(int round) {
    world.fill(0, round);
    optimizer.fill(round);
  }
  void expect_filled(int round, const std::string& what) {
    world.expect_filled(0, round, what);
    optimizer.expect_filled(round, what);
  }
  [[nodiscard]] checkpoint::Parts parts() { return {*world.model, &optimizer, nullptr}; }
  void save(const std::string& path) { checkpoint::save_file("save", parts(), {1, 2}, path, std::nullopt); }
  void load(const std::string& path, checkpoint::LoadMode mode = {}) {
    (void)checkpoint::load_file("load", parts(), path, std::nullopt, mode);
  }
};

}  // namespace ddp::test
