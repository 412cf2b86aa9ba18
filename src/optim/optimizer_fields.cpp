// SPDX-License-Identifier: Apache-2.0
// What an optimizer gives to checkpoints, and to later optimizers of the model: its tensors and its fields.
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "optim/optimizer.hpp"

namespace ddp::optim {

Fields Optimizer::common_fields() const {
  Fields fields = progress().groups.fields(model().table(), parameters_);
  fields["max_norm"] = number_text(policy_.max_norm);
  fields["clip_value"] = number_text(policy_.clip_value);
  fields["nonfinite"] = std::to_string(static_cast<int>(policy_.nonfinite));
  fields["skipped"] = std::to_string(progress_.skipped);
  progress_.loss_scale.add_fields(fields);
  return fields;
}

Optimizer::Common Optimizer::read_common(const Fields& fields) const {
  Common common{{ParamGroups::from_fields(fields, model().table(), parameters_), LossScale::from_fields(fields),
                 read_count(fields, "skipped")},
                policy_};
  common.policy.max_norm = read_number(fields, "max_norm");
  common.policy.clip_value = read_number(fields, "clip_value");
  common.policy.nonfinite = static_cast<ddp_nonfinite>(read_count(fields, "nonfinite") & 0x7f);
  check_policy(common.policy, "the checkpoint", DDP_ERROR_IO);
  return common;
}

void Optimizer::add_tensor(std::vector<model::StateTensor>& tensors, const OptimizerState& from, int32_t index, size_t array,
                           const std::string& field) const {
  const Parameters& table = model().table();
  model::StateTensor made{table.parameter(index).name + "." + field, from.tensor(table, index, array), {}};
  const parts::OptimizerStage* const stage = model().optimizer_slot().stage_of(*this);
  for (int32_t rank = 0; policy_.shard && stage != nullptr && rank < model().group().size(); ++rank) {
    const OwnedParts theirs = stage->ownership().parts(rank, index);
    std::vector<OwnedSpan>& spans = made.parts.emplace_back(theirs.begin(), theirs.end());
    for (OwnedSpan& span : spans) span.piece = 0;  // the number may be another one on a rank that has joined
  }
  tensors.push_back(std::move(made));
}

std::vector<model::StateTensor> Optimizer::named_tensors(const std::vector<std::string>& fields) {
  allocate();
  std::vector<model::StateTensor> tensors;
  for (int32_t i = 0; i < model().table().parameter_count(); ++i) {
    if (!parameters_.has(i) || model().table().parameter(i).removed) continue;
    for (size_t k = 0; store() != nullptr && k < store()->arrays() && k < fields.size(); ++k)
      add_tensor(tensors, *store(), i, k, fields[k]);
    if (policy_.master_weights && Masters::has(model().table().parameter(i)))
      add_tensor(tensors, masters_.store(), i, 0, "master");
  }
  return tensors;
}

void Optimizer::reopen() {
  static_cast<void>(progress());  // the host counts again
  gpu_steps_.reset();
  whole_.clear();
  undo_.all = Undo();
  if (policy_.shard) lose_parts();
}

void Optimizer::join_others() {
  for (const auto& state : model().replicas().kept_equal())
    if (state.get() != this && state->optimizer_steps() >= 0) return share(state->state_fields());
}

}  // namespace ddp::optim
