// SPDX-License-Identifier: Apache-2.0
// Optimizers to try one after the other: every rule, and every way to treat what comes in.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optim/adam.hpp"
#include "optim/sgd.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

using MakeOptimizer = std::function<std::shared_ptr<optim::Optimizer>(const std::shared_ptr<model::Model>&)>;

struct RuleCase {
  std::string name;
  MakeOptimizer make;
};

template <class Change>
MakeOptimizer sgd(Change change) {
  SgdOptions options;
  options.rate = 0.05;
  options.weight_decay = 0.03;
  change(options);
  return [options](const std::shared_ptr<model::Model>& model) {
    return std::make_shared<optim::Sgd>(model, options, options);
  };
}
template <class Change>
MakeOptimizer adam(Change change) {
  AdamOptions options;
  options.rate = 0.02;
  options.weight_decay = 0.05;
  change(options);
  return [options](const std::shared_ptr<model::Model>& model) {
    return std::make_shared<optim::Adam>(model, options, options);
  };
}

inline std::vector<RuleCase> rules() {
  return {{"sgd", sgd([](auto&) {})},
          {"momentum", sgd([](auto& o) { o.momentum = 0.9; })},
          {"dampening", sgd([](auto& o) {
             o.momentum = 0.9;
             o.dampening = 0.2;
             o.weight_decay = 0;
           })},
          {"nesterov", sgd([](auto& o) {
             o.momentum = 0.8;
             o.nesterov = 1;
           })},
          {"adamw", adam([](auto&) {})},
          {"adam", adam([](auto& o) { o.decoupled = 0; })}};
}

inline std::vector<RuleCase> policies() {
  std::vector<RuleCase> cases;
  const auto both = [&](const std::string& name, auto change) {
    cases.push_back({"nesterov, " + name, sgd([&](auto& o) {
                       o.momentum = 0.8;
                       o.nesterov = 1;
                       change(o);
                     })});
    cases.push_back({"adamw, " + name, adam(change)});
  };
  both("master weights", [](auto& o) { o.master_weights = 1; });
  both("clip by norm", [](auto& o) { o.max_norm = 3; });
  both("clip by norm that does nothing", [](auto& o) { o.max_norm = 1e6; });
  both("clip by value", [](auto& o) { o.clip_value = 0.4; });
  both("clip by both", [](auto& o) {
    o.max_norm = 60;
    o.clip_value = 0.3;
    o.master_weights = 1;
  });
  both("skip", [](auto& o) { o.nonfinite = DDP_NONFINITE_SKIP; });
  both("skip and clip", [](auto& o) {
    o.nonfinite = DDP_NONFINITE_SKIP;
    o.max_norm = 5;
    o.master_weights = 1;
  });
  return cases;
}

/// Rates, groups and a freeze that change on the way; an infinite element if the rule copes with it.
}  // namespace ddp::test
