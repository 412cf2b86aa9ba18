// SPDX-License-Identifier: Apache-2.0
// Models by the names of their parameters, so that one that is reopened can be compared with one that never is. Gradients
// are made from rank, step, name and position.
#pragma once

#include "checkpoint/state.hpp"
#include "model/gradients.hpp"
#include "model/optimizer_slot.hpp"
#include "model/reopened.hpp"
#include "model/replicas.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "optim/sgd.hpp"
#include "support/group_paths.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

/// Parameters by name, with their numbers of elements; values begin anew from `salt`.
using Sizes = std::vector<std::pair<std::string, int64_t>>;

struct ReopenedWays {
  bool shard_first = false, shard_second = false;
  bool first_in_backward = false, second_in_backward = false;
  bool own_values = false;
  bool owned_grads = true;
  bool listed = false;  // AdamW has a list, so added parameters belong to another optimizer
  ddp_unused unused = DDP_UNUSED_ALLOW;
};

class ReopenedWorld {
 public:
  /// Optimizers: momentum for those whose names begin with "m", AdamW for the rest. Not committed.
  ReopenedWorld(group::Group& group, const ReopenedWays& ways, const Sizes& parameters) : group_(group), ways_(ways) {
    ddp_model_options options{.first_bucket_bytes = 8'000,
                              .bucket_bytes = 60'000,
                              .reduce = DDP_AVERAGE,
                              .unused = ways.unused,
                              .progress = DDP_PROGRESS_CALLER,
                              .own_values = ways.own_values ? 1 : 0};
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (const auto& [name, size] : parameters) add(name, size);
    if (!named("m").empty()) momentum = make_momentum(named("m"));
    adam = make_adam(ways.listed ? named("a") : std::vector<int32_t>());
    ema = std::make_shared<optim::Ema>(model, std::vector<double>{0.5, 0.875});
    model->replicas().keep_equal(ema);
  }

  /// `salt`: values are others on other ranks, unless it is 0.
  void add(const std::string& name, int64_t size, double salt = 0) {
    std::vector<float>& value = kept_.emplace_back(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i)
      value[static_cast<size_t>(i)] = static_cast<float>(std::sin(static_cast<double>(i) + salt + number_of(name)));
    std::vector<float>& grad = kept_.emplace_back(static_cast<size_t>(size));
    const Tensor gradient = flat_tensor(grad.data(), DDP_F32, size);
    indices[name] =
        model->add_parameter(name, flat_tensor(value.data(), DDP_F32, size), ways_.owned_grads ? nullptr : &gradient);
  }
  void remove(const std::string& name) {
    model::Reopened::remove_parameter(*model, indices.at(name));
    indices.erase(name);
  }
  void reopen() { model::Reopened::begin(*model, nullptr); }

  [[nodiscard]] std::vector<int32_t> named(const std::string& start) const {
    std::vector<int32_t> found;
    for (const auto& [name, index] : indices)
      if (name.compare(0, start.size(), start) == 0) found.push_back(index);
    return found;
  }
  std::shared_ptr<optim::Optimizer> make_momentum(const std::vector<int32_t>& list) {
    SgdOptions options;
    options.momentum = 0.9;
    options.rate = 0.05;
    options.shard = ways_.shard_first;
    options.in_backward = ways_.first_in_backward;
    options.parameters = list.data();
    options.parameter_count = std::ssize(list);
    return attach(std::make_shared<optim::Sgd>(model, options, options));
  }
  /// Without a list: all that are free, and those that are added later.
  std::shared_ptr<optim::Optimizer> make_adam(const std::vector<int32_t>& list) {
    AdamOptions options;
    if (!list.empty()) options.parameters = list.data();
    options.parameter_count = std::ssize(list);
    options.rate = 0.05;
    options.shard = ways_.shard_second;
    options.in_backward = ways_.second_in_backward;
    return attach(std::make_shared<optim::Adam>(model, options, options));
  }

  /// Adds to the gradients, and marks all but those in `unused`.
  void pass(int step, ddp_pass mode = DDP_PASS_REDUCE, const std::set<std::string>& unused = {}) {
    model->begin_backward(mode);
    for (const auto& [name, index] : indices) {
      if (unused.count(name) != 0) {
        model->pass().mark_unused(index);
        continue;
      }
      const Tensor& grad = model->table().parameter(index).grad;
      auto* const data = reinterpret_cast<float*>(grad.data);
      for (int64_t i = 0; i < grad.count; ++i) data[i] += gradient(group_.rank(), step, name, i);
      model->pass().mark_ready(index);
    }
    model->end_backward();
  }
  /// A step from the gradients, which are zero afterwards.
  void step() {
    for (const auto& each : all) each->step();
    ema->update();
    model->gradients().zero();
  }
  void train(int first, int end) {
    for (int number = first; number < end; ++number) {
      pass(number);
      step();
    }
  }

  /// The value of a parameter and its averages.
  [[nodiscard]] std::string bytes_of(const std::string& name) const {
    std::string bytes = bytes_of(model->table().parameter(indices.at(name)).value);
    for (const model::StateTensor& each : ema->state_tensors())
      if (each.name.substr(each.name.find('.', 2) + 1) == name) bytes += bytes_of(each.tensor);
    return bytes;
  }
  [[nodiscard]] std::string bytes() const {
    std::string bytes;
    for (const auto& [name, index] : indices) bytes += bytes_of(name);
    return bytes;
  }
  [[nodiscard]] checkpoint::Parts parts() const {
    std::vector<model::ReplicaState*> optimizers;
    for (const auto& each : all) optimizers.push_back(each.get());
    return {*model, checkpoint::Optimizers(optimizers), ema.get()};
  }

  std::shared_ptr<model::Model> model;
  std::map<std::string, int32_t> indices;
  std::shared_ptr<optim::Optimizer> momentum, adam;
  std::vector<std::shared_ptr<optim::Optimizer>> all;
  std::shared_ptr<optim::Ema> ema;

 private:
  [[nodiscard]] static std::string bytes_of(const Tensor& tensor) {
    return {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes())};
  }
  [[nodiscard]] static double number_of(const std::string& name) {
    double number = 0;
    for (const char c : name) number = number * 3 + c;
    return number;
  }
  [[nodiscard]] static float gradient(int rank, int step, const std::string& name, int64_t i) {
    return static_cast<float>(std::cos(static_cast<double>(i) * 0.7 + rank * 1.3 + step * 0.11 + number_of(name)));
  }
  std::shared_ptr<optim::Optimizer> attach(std::shared_ptr<optim::Optimizer> made) {
    model->optimizer_slot().add(made);
    made->join_others();
    model->replicas().keep_equal(made);
    all.push_back(made);
    return made;
  }

  group::Group& group_;
  const ReopenedWays ways_;
  std::deque<std::vector<float>> kept_;
};

}  // namespace ddp::test
