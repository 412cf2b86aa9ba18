// SPDX-License-Identifier: Apache-2.0
// The plan of a step for every combination of its inputs, compared with tables of rules that are read from the top: the
// first rule that holds decides. A rule that decides nothing is an error too.
#include "parts/step/step_plan.hpp"

#include "support/check.hpp"

using parts::StepPlan;
using parts::StepState;
using Reduction = StepPlan::Reduction;
using When = StepPlan::When;
using Values = StepPlan::Values;
using Norm = StepPlan::Norm;

const std::array<std::string, 13> kNames = {"shard",    "in_backward", "whole_gradient", "whole_tensors", "hook",
                                            "partial",  "gpu",         "mixed",          "scatter",       "can_fuse",
                                            "prepared", "divides",     "divides_late"};

struct Inputs {
  std::array<bool, 13> bits{};

  [[nodiscard]] bool has(const std::string& name) const {
    for (size_t k = 0; k < kNames.size(); ++k)
      if (kNames[k] == name) return bits[k];
    throw std::runtime_error("there is no input " + name);
  }
  /// "+a -b": a holds and b does not.
  [[nodiscard]] bool fit(const std::string& condition) const {
    std::istringstream words(condition);
    bool all = true;
    for (std::string word; words >> word;) all = has(word.substr(1)) == (word[0] == '+') && all;
    return all;
  }
  [[nodiscard]] parts::StepRequest request() const { return {bits[0], bits[1], bits[2], bits[3], bits[11], bits[12]}; }
  [[nodiscard]] parts::StepSetting setting() const { return {bits[4], bits[5], bits[6], bits[7], bits[8], bits[9]}; }
  [[nodiscard]] StepPlan plan() const { return plan_step(request(), setting(), bits[10]); }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (size_t k = 0; k < kNames.size(); ++k) all += (bits[k] ? " +" : " -") + kNames[k];
    return all;
  }
};

std::vector<Inputs> all_inputs() {
  std::vector<Inputs> all(size_t{1} << kNames.size());
  for (size_t n = 0; n < all.size(); ++n)
    for (size_t k = 0; k < kNames.size(); ++k) all[n].bits[k] = (n >> k & 1) != 0;
  return all;
}

template <class Outcome>
struct Rule {
  std::string condition;
  Outcome outcome;
};

template <class Outcome>
void expect_rules(const std::vector<Rule<Outcome>>& rules, Outcome StepPlan::*field, const std::string& what) {
  std::vector<int> decided(rules.size());
  for (const Inputs& inputs : all_inputs()) {
    size_t k = 0;
    while (!inputs.fit(rules.at(k).condition)) ++k;
    ++decided[k];
    expect_equal(static_cast<int>(inputs.plan().*field), static_cast<int>(rules[k].outcome), what + " of" + inputs.text());
  }
  for (size_t k = 0; k < rules.size(); ++k)
    expect(decided[k] > 0, what + ": the rule \"" + rules[k].condition + "\" decides");
}

ddp_case(a_step_runs_where_the_rules_say) {
  expect_rules<When>({{"-in_backward", When::kAtOptimizerStep},
                      {"+whole_gradient", When::kAtOptimizerStep},
                      {"-prepared", When::kAtEndOfPass},
                      {"+hook", When::kAtEndOfPass},
                      {"+partial +gpu", When::kAtEndOfPass},
                      {"+partial +mixed", When::kAtEndOfPass},
                      {"+shard +can_fuse -whole_tensors", When::kInExchange},
                      {"", When::kBehindBucket}},
                     &StepPlan::when, "when");
}

ddp_case(gradients_are_reduced_where_the_rules_say) {
  expect_rules<Reduction>({{"-shard", Reduction::kEverywhere},
                           {"-prepared", Reduction::kEverywhere},
                           {"+hook", Reduction::kEverywhere},
                           {"+scatter", Reduction::kToSlices},
                           {"-can_fuse", Reduction::kEverywhere},
                           // From here on slices come from the fused exchange alone.
                           {"-in_backward", Reduction::kEverywhere},
                           {"+whole_gradient", Reduction::kEverywhere},
                           {"+whole_tensors", Reduction::kEverywhere},
                           {"+partial +gpu", Reduction::kEverywhere},
                           {"+partial +mixed", Reduction::kEverywhere},
                           {"", Reduction::kToSlices}},
                          &StepPlan::reduction, "the reduction");
}

ddp_case(values_are_given_as_the_rules_say) {
  expect_rules<Values>({{"-shard", Values::kNobody},
                        {"-can_fuse", Values::kAllGather},
                        {"-in_backward", Values::kAllGather},
                        {"+whole_gradient", Values::kAllGather},
                        {"+whole_tensors", Values::kAllGather},
                        {"-prepared", Values::kAllGather},
                        {"+hook", Values::kAllGather},
                        {"+partial +gpu", Values::kAllGather},
                        {"+partial +mixed", Values::kAllGather},
                        {"", Values::kFusedExchange}},
                       &StepPlan::values, "who gives values");
}

ddp_case(the_norm_is_taken_when_the_rules_say) {
  expect_rules<Norm>({{"-whole_gradient", Norm::kAtStep},
                      {"-shard", Norm::kAtStep},
                      {"-scatter", Norm::kAtStep},
                      {"-prepared", Norm::kAtStep},
                      {"+hook", Norm::kAtStep},
                      {"+gpu", Norm::kAtStep},
                      {"+mixed", Norm::kAtStep},
                      {"", Norm::kWhileReduced}},
                     &StepPlan::norm, "the norm");
}

ddp_case(a_sum_is_left_where_the_rules_say) {
  expect_rules<bool>({{"-gpu", false},
                      {"-divides", false},
                      {"+whole_gradient", false},
                      {"+whole_tensors", false},
                      {"+hook", false},
                      {"+partial", false},
                      {"-in_backward +divides_late", true},
                      {"-in_backward", false},
                      {"-prepared", false},
                      {"+shard +can_fuse", false},
                      {"", true}},
                     &StepPlan::leaves_sum, "a sum");
}

ddp_case(a_plan_asks_only_for_exchanges_that_are_prepared) {
  for (const Inputs& inputs : all_inputs()) {
    const StepPlan plan = inputs.plan();
    const parts::StepExchanges exchanges = step_exchanges(inputs.request(), inputs.setting());
    const bool ready = inputs.has("prepared");
    if (plan.when == When::kInExchange) {
      expect(exchanges.fused && ready, "fused:" + inputs.text());
    } else if (plan.reduction == Reduction::kToSlices) {
      expect(exchanges.reduce_scatter && ready, "reduce-scatter:" + inputs.text());
    }
    if (plan.values == Values::kAllGather) expect(exchanges.all_gather, "all-gather:" + inputs.text());
    if (plan.follows()) expect(ready, "a step in the pass:" + inputs.text());
    const bool never_fused = inputs.fit("+hook") || inputs.fit("+partial +gpu") || inputs.fit("+partial +mixed") ||
                             inputs.fit("-in_backward") || inputs.fit("+whole_tensors");
    expect_equal(exchanges.all_gather, inputs.fit("+shard"), "all-gather of" + inputs.text());
    expect_equal(exchanges.reduce_scatter, inputs.fit("+shard +scatter -hook"), "reduce-scatter of" + inputs.text());
    expect_equal(exchanges.fused, inputs.fit("+shard +can_fuse") && !never_fused, "fused exchange of" + inputs.text());
  }
}

/// Else a pass would take back the changes of some buckets alone.
ddp_case(buckets_in_host_memory_and_on_a_gpu_follow_alike) {
  int mixed = 0;
  for (const Inputs& host : all_inputs())
    for (int can = 0; can < 4 && !host.has("gpu") && host.has("mixed"); ++can) {
      Inputs gpu = host;
      gpu.bits[6] = true;
      gpu.bits[8] = (can & 1) != 0;
      gpu.bits[9] = (can & 2) != 0;
      expect_equal(gpu.plan().follows(), host.plan().follows(), "follows:" + host.text());
      expect(gpu.plan().norm == host.plan().norm, "the norm:" + host.text());
      ++mixed;
    }
  expect_equal(mixed, 4 * 2048, "models with both");
}

/// The rows of src/pass/README.md for the transports of today.
ddp_case(transports_get_the_plans_of_the_guide) {
  const auto plan = [](bool shard, bool gpu, bool blocks, bool hook) {
    Inputs inputs;
    inputs.bits = {shard, true, false, false, hook, false, gpu, false, true, !blocks && !gpu, true};
    return inputs.plan();
  };
  expect(plan(true, false, false, false) ==
             StepPlan{Reduction::kToSlices, When::kInExchange, Values::kFusedExchange, Norm::kAtStep},
         "sharded over shared memory");
  expect(plan(true, false, true, false) ==
             StepPlan{Reduction::kToSlices, When::kBehindBucket, Values::kAllGather, Norm::kAtStep},
         "sharded over sockets");
  expect(plan(true, true, true, false) ==
             StepPlan{Reduction::kToSlices, When::kBehindBucket, Values::kAllGather, Norm::kAtStep},
         "sharded on a GPU");
  expect(plan(true, false, false, true) ==
             StepPlan{Reduction::kEverywhere, When::kAtEndOfPass, Values::kAllGather, Norm::kAtStep},
         "sharded behind a hook");
  for (const bool gpu : {false, true})
    for (const bool blocks : {false, true})
      expect(plan(false, gpu, blocks, false) ==
                 StepPlan{Reduction::kEverywhere, When::kBehindBucket, Values::kNobody, Norm::kAtStep},
             "replicated");
}

ddp_case(only_a_pending_step_is_taken_back_and_a_made_one_is_heard_of_once) {
  StepState state;
  expect(state.is(StepState::Is::kNone) && !state.take_made(), "at first");
  state.take_back();
  expect(state.is(StepState::Is::kNone), "there is nothing to take back");
  state.begin_pass(false);
  expect(state.is(StepState::Is::kNone), "a pass without a step");
  state.begin_pass(true);
  expect(state.is(StepState::Is::kPending) && !state.take_made(), "a pass with one");
  state.take_back();
  expect(state.is(StepState::Is::kTakenBack) && !state.take_made(), "taken back");
  state.begin_pass(true);
  state.make();
  state.take_back();
  expect(state.is(StepState::Is::kMade), "what is made whole stays");
  expect(state.take_made() && !state.take_made() && state.is(StepState::Is::kNone), "once");
  state.begin_step();
  expect(state.is(StepState::Is::kPending), "outside a pass");
  state.end_step();
  expect(state.is(StepState::Is::kNone) && !state.take_made(), "ddp_optimizer_step knows what it has made");
}
