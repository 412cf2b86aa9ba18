// SPDX-License-Identifier: Apache-2.0
// A model with several optimizers, and for each of them a model of its parameters alone with an ordinary optimizer, whose
// bits it is to have. Gradients are those of support/fused_world.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state.hpp"
#include "support/fused_world.hpp"

namespace ddp::test {

/// One of the optimizers.
struct Stepper {
  Rule rule = Rule::kSgd;
  std::vector<int32_t> parameters{};  // of kFusedShapes; none: the rest
  bool shard = false;
  bool in_backward = false;
  bool custom = false;
  bool whole_tensors = false;
  double max_norm = 0;
  bool late_values = false;
};

struct SeveralWays {
  std::vector<Stepper> steppers;
  bool own_values = false;
  bool owned_grads = true;
  ddp_progress progress = DDP_PROGRESS_CALLER;
  std::vector<int32_t> parameters{};  // that the model has; none: all
};

class SeveralWorld {
 public:
  SeveralWorld(group::Group& group, const SeveralWays& ways) : ways_(ways), parameters_(ways.parameters) {
    if (parameters_.empty()) {
      parameters_.resize(kFusedShapes.size());
      std::iota(parameters_.begin(), parameters_.end(), 0);
    }
    ddp_model_options options{};
    options.first_bucket_bytes = 8'000;
    options.bucket_bytes = 60'000;
    options.reduce = DDP_AVERAGE;
    options.unused = DDP_UNUSED_ALLOW;
    options.progress = ways.progress;
    options.own_values = ways.own_values ? 1 : 0;
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (const int32_t number : parameters_) {
      const auto p = static_cast<size_t>(number);
      kept_values_.emplace_back(static_cast<size_t>(kFusedShapes[p]));
      kept_grads_.emplace_back(static_cast<size_t>(kFusedShapes[p]));
      for (int64_t i = 0; i < kFusedShapes[p]; ++i)
        kept_values_.back()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i) + static_cast<float>(p));
      const Tensor grad = flat_tensor(kept_grads_.back().data(), DDP_F32, kFusedShapes[p]);
      model->add_parameter("p" + std::to_string(p), flat_tensor(kept_values_.back().data(), DDP_F32, kFusedShapes[p]),
                           ways.owned_grads ? nullptr : &grad);
    }
    for (const Stepper& each : ways_.steppers) make(each);
    model->commit();
  }

  /// A REDUCE pass; parameters in `unused` are not used on any rank, those in `missing` not marked here. `spoiled`: the
  /// gradient of that parameter is not finite on rank 0.
  void pass(int rank, int step, const std::set<int32_t>& unused = {}, const std::set<int32_t>& missing = {},
            int32_t spoiled = -1, double scale = 1) {
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t k = parameters_.size(); k-- > 0;) {
      const int32_t number = parameters_[k];
      const auto index = static_cast<int32_t>(k);
      if (missing.count(number) != 0) continue;
      if (unused.count(number) != 0) {
        model->pass().mark_unused(index);
        continue;
      }
      auto* const grad = reinterpret_cast<float*>(model->table().parameter(index).grad.data);
      for (int64_t i = 0; i < kFusedShapes[static_cast<size_t>(number)]; ++i)
        grad[i] = static_cast<float>(scale * FusedWorld::gradient(rank, step, static_cast<size_t>(number), i));
      if (number == spoiled && rank == 0) grad[0] = std::numeric_limits<float>::infinity();
      model->pass().mark_ready(index);
    }
    model->end_backward();
  }
  void step() {
    for (const auto& each : optimizers) each->step();
  }
  /// The values of a parameter of kFusedShapes; "" if the model does not have it.
  [[nodiscard]] std::string bytes_of(int32_t number) const {
    const auto found = std::find(parameters_.begin(), parameters_.end(), number);
    if (found == parameters_.end()) return "";
    const Tensor& value = model->table().parameter(static_cast<int32_t>(found - parameters_.begin())).value;
    return {reinterpret_cast<const char*>(value.data), static_cast<size_t>(value.bytes())};
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (const int32_t number : parameters_) all += bytes_of(number);
    return all;
  }
  [[nodiscard]] checkpoint::Parts parts() const {
    std::vector<optim::Optimizer*> all;
    for (const auto& each : optimizers) all.push_back(each.get());
    return {*model, checkpoint::Optimizers(all)};
  }

  std::shared_ptr<model::Model> model;
  std::vector<std::shared_ptr<optim::BuiltinOptimizer>> optimizers;
  std::vector<std::unique_ptr<OwnRule>> own;

 private:
  void make(const Stepper& each) {
    std::vector<int32_t> indices;
    for (const int32_t number : each.parameters)
      indices.push_back(
          static_cast<int32_t>(std::find(parameters_.begin(), parameters_.end(), number) - parameters_.begin()));
    const auto fill = [&](auto& options) {
      options.shard = each.shard;
      options.in_backward = each.in_backward;
      options.late_values = each.late_values ? 1 : 0;
      options.max_norm = each.max_norm;
      options.rate = 0.05;
      if (!indices.empty()) options.parameters = indices.data();
      options.parameter_count = static_cast<int64_t>(indices.size());
    };
    own.push_back(std::make_unique<OwnRule>());
    if (each.custom) {
      own.back()->kind = static_cast<OwnRule::Kind>(each.rule);
      CustomOptions options;
      fill(options);
      options.whole_tensors = each.whole_tensors;
      optimizers.push_back(std::make_shared<optim::Custom>(model, own_rule,
                                                           optim::CustomRule(options, own.back()->states(), "test"), options,
                                                           optim::UserData(own.back().get(), nullptr)));
    } else if (each.rule == Rule::kAdamW) {
      AdamOptions options;
      fill(options);
      optimizers.push_back(std::make_shared<optim::Adam>(model, options, options));
    } else {
      SgdOptions options;
      fill(options);
      options.momentum = each.rule == Rule::kMomentum ? 0.9 : 0;
      optimizers.push_back(std::make_shared<optim::Sgd>(model, options, options));
    }
    model->optimizer_slot().add(optimizers.back());
    optimizers.back()->join_others();
    model->replicas().keep_equal(optimizers.back());
  }

  const SeveralWays ways_;
  std::vector<int32_t> parameters_;
  std::vector<std::vector<float>> kept_values_, kept_grads_;
};

/// For each optimizer a model of its parameters alone, with the same rule in the ordinary way.
class Apart {
 public:
  Apart(group::Group& group, const SeveralWays& ways) {
    std::set<int32_t> left;
    for (size_t p = 0; p < kFusedShapes.size(); ++p) left.insert(static_cast<int32_t>(p));
    for (const Stepper& each : ways.steppers)
      for (const int32_t number : each.parameters) left.erase(number);
    for (const Stepper& each : ways.steppers) {
      SeveralWays alone;
      alone.parameters = each.parameters.empty() ? std::vector<int32_t>(left.begin(), left.end()) : each.parameters;
      alone.steppers = {each};
      Stepper& stepper = alone.steppers.front();
      stepper.parameters.clear();
      stepper.shard = stepper.in_backward = stepper.whole_tensors = stepper.late_values = false;
      worlds_.push_back(std::make_unique<SeveralWorld>(group, alone));
    }
  }
  void pass(int rank, int step, const std::set<int32_t>& unused = {}) {
    for (const auto& each : worlds_) each->pass(rank, step, unused);
  }
  void step() {
    for (const auto& each : worlds_) each->step();
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (size_t p = 0; p < kFusedShapes.size(); ++p)
      for (const auto& each : worlds_) all += each->bytes_of(static_cast<int32_t>(p));
    return all;
  }

 private:
  std::vector<std::unique_ptr<SeveralWorld>> worlds_;
};

}  // namespace ddp::test
