// SPDX-License-Identifier: Apache-2.0
#include "parts/model_pass.hpp"

#include <algorithm>
#include <utility>

#include "core/attempt.hpp"
#include "core/virtual_ranks.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"

namespace ddp::parts {
namespace {

pass::BucketRules rules_of(const group::Group& group, const ddp_model_options& options, const Hook& hook) {
  const VirtualRanks ranks = VirtualRanks::of(group.options(), group.rank(), group.size());
  return {options.reduce, ranks.total, options.divisor == DDP_DIVISOR_WEIGHTS, hook.wire};
}

/// The numbers of the buckets with these parameters. Throws INVALID_STATE if one has others too.
std::vector<size_t> buckets_of(const Parameters& table, const Plan& plan, const ParameterSet& own, const std::string& name) {
  std::vector<size_t> numbers;
  for (size_t b = 0; b < plan.size(); ++b) {
    const std::vector<PlannedPiece>& pieces = plan[b].pieces;
    const auto is_own = [&](const PlannedPiece& piece) { return own.has(piece.parameter); };
    const auto mine = std::find_if(pieces.begin(), pieces.end(), is_own);
    if (mine == pieces.end()) continue;
    if (const auto other = std::find_if_not(pieces.begin(), pieces.end(), is_own); other != pieces.end())
      throw make_error(
          DDP_ERROR_INVALID_STATE,
          "%s has parameter \"%s\", which is in one bucket with \"%s\", which it has not; the buckets are cut by "
          "ddp_model_commit, so make all optimizers with shard, in_backward or divide_in_step before it",
          name.c_str(), table.parameter(mine->parameter).name.c_str(), table.parameter(other->parameter).name.c_str());
    numbers.push_back(b);
  }
  return numbers;
}

}  // namespace

ModelParts::ModelParts(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan planned,
                       uint64_t plan_hash, const Hook& hook)
    : channel(group),
      plan(std::move(planned)),
      rules(rules_of(group, options, hook)),
      meter(channel, table, plan),
      events(group, table, plan),
      batch(channel, table, plan, plan_hash, rules, options.uneven_inputs != 0),
      hooked(hook.copies() ? std::make_unique<HookedBuckets>(channel, hook, options.reduce, plan, table) : nullptr),
      optimizers(plan.size()) {}

std::vector<pass::PassPart*> ModelParts::in_order() {
  std::vector<pass::PassPart*> parts{&meter, &events, &batch};
  if (hooked != nullptr) parts.push_back(hooked.get());
  parts.push_back(&optimizers);
  return parts;
}

ModelPass::ModelPass(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan planned,
                     uint64_t plan_hash, const Hook& hook)
    : ModelParts(group, table, options, std::move(planned), plan_hash, hook),
      Pass({channel, table, options, ModelParts::plan, plan_hash, rules, in_order()}) {}

void ModelPass::set_weight(double weight) {
  require_not_started(
      "ddp_model_set_weight: gradients of this pass are under way; set the weight before the first ddp_model_mark_ready");
  attendance().set_weight(weight);
}

void ModelPass::set_last() {
  require_not_started(
      "ddp_model_set_last_pass: gradients of this pass are under way; call it before the first ddp_model_mark_ready");
  attendance().set_last();
}

const JoinHeader& ModelPass::call_roll(Call call, int32_t argument, bool joined) {
  const collective::OpenPass opened(channel, nullptr, queue());
  return attendance().call_roll(queue(), call, argument, joined);
}

std::shared_ptr<HookBucket> ModelPass::next_bucket(bool rest) {
  require_open();
  if (hooked == nullptr || mode() != DDP_PASS_REDUCE) return nullptr;
  if (rest) start_rest();
  return group::or_break(channel.group(), group::Part::kExchange, [this] { return hooked->next(); });
}

void ModelPass::finish_bucket(const std::optional<Error>& problem) {
  if (hooked == nullptr) throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_finish_bucket: the model's buckets are not pulled");
  on_error([&] { hooked->finish(problem); },
           [this](const Error& error) {
             if (breaks_group(error.status())) channel.fail(error);
           });
}

void ModelPass::attach(const std::shared_ptr<BlockUpdate>& update, const std::string& name) {
  std::vector<size_t> numbers = buckets_of(table(), plan, update->parameters(), name);
  Plan own;
  for (const size_t number : numbers) own.push_back(plan[number]);
  const pass::Traits traits = this->traits();
  StepSetting setting;
  setting.reduces_copy = traits.reduces_copies;
  setting.partial_allowed = traits.partial;
  setting.uneven = traits.uneven;
  auto stage = std::make_unique<OptimizerStage>(
      channel, table(), std::move(own), *update, [this, numbers](size_t k) { return describe(numbers[k]); }, setting);
  ModelParts::optimizers.attach(update, name, std::move(numbers), std::move(stage));
}

}  // namespace ddp::parts
