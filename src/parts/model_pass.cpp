// SPDX-License-Identifier: Apache-2.0
#include "parts/model_pass.hpp"

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

}  // namespace

ModelParts::ModelParts(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan planned,
                       uint64_t plan_hash, const Hook& hook)
    : channel(group),
      plan(std::move(planned)),
      rules(rules_of(group, options, hook)),
      meter(channel, table, plan),
      events(group, table, plan),
      batch(channel, table, plan, plan_hash, rules, options.uneven_inputs != 0),
      hooked(hook.copies() ? std::make_unique<HookedBuckets>(channel, hook, options.reduce, plan, table) : nullptr) {}

std::vector<pass::PassPart*> ModelParts::in_order() {
  std::vector<pass::PassPart*> parts{&meter, &events, &batch};
  if (hooked != nullptr) parts.push_back(hooked.get());
  parts.push_back(&optimizer);
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

void ModelPass::attach(std::weak_ptr<BlockUpdate> update) {
  const std::shared_ptr<BlockUpdate> held = update.lock();
  if (held == nullptr) return;
  const pass::Traits traits = this->traits();
  StepSetting setting;
  setting.reduces_copy = traits.reduces_copies;
  setting.partial_allowed = traits.partial;
  setting.uneven = traits.uneven;
  optimizer.attach(std::move(update),
                   std::make_unique<OptimizerStage>(
                       channel, table(), plan, *held, [this](size_t bucket) { return describe(bucket); }, setting));
}

}  // namespace ddp::parts
