// SPDX-License-Identifier: Apache-2.0
#include "model/optimizer_slot.hpp"

#include <algorithm>
#include <map>

#include "group/consensus.hpp"
#include "model/gradients.hpp"
#include "model/model.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

constexpr const char* kCreate = "ddp_optimizer_create";
constexpr int32_t kLater = INT32_MAX;  // stands for parameters that are registered later

[[noreturn]] void refuse_twice(const std::string& parameter, const std::string& owner, const std::string& other) {
  throw make_error(DDP_ERROR_INVALID_STATE,
                   "%s: %s would get %s, which %s has; a parameter has one optimizer: give each a list of parameters (an "
                   "optimizer without a list gets all that are free when it is made), or destroy the other one first",
                   kCreate, other.c_str(), parameter.c_str(), owner.c_str());
}

std::string parameter_name(const Parameters& table, int32_t index) {
  return "parameter \"" + table.parameter(index).name + "\"";
}

}  // namespace

std::string OptimizerSlot::name_of(int64_t number, const char* kind) {
  return "optimizer " + std::to_string(number) + " (" + kind + ")";
}

std::optional<std::string> OptimizerSlot::owner_of(int32_t parameter) const {
  for (const Entry& each : all_)
    if (const auto update = each.update.lock(); update != nullptr && update->parameters().has(parameter))
      return name_of(each.number, update->rule_name());
  return std::nullopt;
}

std::string OptimizerSlot::name_of(const parts::BlockUpdate& update) const {
  for (const Entry& each : all_)
    if (each.update.lock().get() == &update) return name_of(each.number, update.rule_name());
  return update.rule_name();
}

ParameterSet OptimizerSlot::choose(const int32_t* list, int64_t count, const char* kind) const {
  const Parameters& table = model_.table();
  const std::string mine = name_of(next_, kind);
  if (count < 0 || (count > 0) != (list != nullptr))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: parameter_count is %lld and parameters is %s; they are a list of 1 or more, or 0 and NULL",
                     kCreate, static_cast<long long>(count), list == nullptr ? "NULL" : "not NULL");
  if (list == nullptr) {
    const auto is_taken = [this](int32_t index) { return owner_of(index).has_value(); };
    ParameterSet rest = ParameterSet::all_but(table.parameter_count(), is_taken);
    if (const std::optional<std::string> owner = owner_of(kLater)) {  // then all that there are have one
      for (const int32_t index : table.present())
        if (const std::optional<std::string> other = owner_of(index))
          refuse_twice(parameter_name(table, index), *other, mine);
      refuse_twice("all parameters", *owner, mine);
    }
    return rest;
  }
  std::vector<int32_t> indices;
  std::vector<bool> seen(table.parameters().size());
  for (int64_t k = 0; k < count; ++k) {
    const int32_t index = list[k];
    if (index < 0 || index >= table.parameter_count())
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: parameters[%lld] is %d, but the model has %d parameters", kCreate,
                       static_cast<long long>(k), index, table.parameter_count());
    if (table.parameter(index).removed)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: parameters[%lld] is %d, which was removed", kCreate,
                       static_cast<long long>(k), index);
    if (seen[static_cast<size_t>(index)])
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: parameters has \"%s\" (index %d) twice", kCreate,
                       table.parameter(index).name.c_str(), index);
    if (const std::optional<std::string> owner = owner_of(index)) refuse_twice(parameter_name(table, index), *owner, mine);
    seen[static_cast<size_t>(index)] = true;
    indices.push_back(index);
  }
  return ParameterSet::of(indices);
}

void OptimizerSlot::add(const std::shared_ptr<parts::BlockUpdate>& update) {
  const parts::StepRequest request = update->request();
  if (request.takes_part()) model_.require_no_pass(kCreate);
  if (request.sharded && model_.options().uneven_inputs != 0)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_optimizer_create: with shard = 1 every rank owns a part of every step, so none may join (uneven_inputs "
                "= 1); leave uneven_inputs 0, "
                "take part with ddp_model_skip_backward, or end all ranks together with ddp_model_set_last_pass");
  const std::string mine = name_of(next_, update->rule_name());
  for (int32_t index = 0; index < model_.table().parameter_count(); ++index)
    if (const auto owner = update->parameters().has(index) ? owner_of(index) : std::nullopt)
      refuse_twice(parameter_name(model_.table(), index), *owner, mine);
  all_.erase(std::remove_if(all_.begin(), all_.end(), [](const Entry& each) { return each.update.expired(); }), all_.end());
  all_.reserve(all_.size() + 1);
  if (request.takes_part() && model_.is_committed()) model_.passes().attach(update, mine);
  all_.push_back({update, next_++});
}

size_t OptimizerSlot::count() const noexcept {
  return static_cast<size_t>(
      std::count_if(all_.begin(), all_.end(), [](const Entry& each) { return !each.update.expired(); }));
}

bool OptimizerSlot::has(int32_t parameter) const noexcept {
  return std::any_of(all_.begin(), all_.end(), [&](const Entry& each) {
    const auto update = each.update.lock();
    return update != nullptr && update->parameters().has(parameter);
  });
}

std::vector<std::shared_ptr<parts::BlockUpdate>> OptimizerSlot::in_passes() const {
  std::vector<std::shared_ptr<parts::BlockUpdate>> found;
  for (const Entry& each : all_)
    if (auto update = each.update.lock(); update != nullptr && update->request().takes_part())
      found.push_back(std::move(update));
  return found;
}

void OptimizerSlot::require_level(const parts::BlockUpdate& update, int64_t number) const {
  if (model_.pass().results().was_captured()) return;
  for (const Entry& each : all_) {
    const auto other = each.update.lock();
    if (other == nullptr || other.get() == &update || other->last_pass() >= number) continue;
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_optimizer_step: %s has left out a step, so its loss scale is not that of %s; call "
                     "ddp_optimizer_step of each optimizer after every pass",
                     name_of(each.number, other->rule_name()).c_str(), name_of(update).c_str());
  }
}

std::optional<bool> OptimizerSlot::finite() const noexcept {
  const pass::Results& results = model_.pass().results();
  if (results.was_captured() || looked_.pass == 0 || looked_.pass != results.final_passes()) return std::nullopt;
  return looked_.finite;
}

void OptimizerSlot::note_finite(bool finite) noexcept { looked_ = {model_.pass().results().final_passes(), finite}; }

/// In the order of the parameters, by position, so that ranks on which other optimizers have lived before number alike.
void OptimizerSlot::number(std::vector<PlanItem>& items) const {
  const auto all = in_passes();
  std::map<const parts::BlockUpdate*, int32_t> numbers;
  const std::vector<int32_t> present = model_.table().present();
  for (size_t position = 0; position < items.size(); ++position) {
    const auto has = [&](const auto& update) { return update->parameters().has(present[position]); };
    const auto found = std::find_if(all.begin(), all.end(), has);
    const parts::BlockUpdate* const owner = found == all.end() ? nullptr : found->get();  // NULL: one that takes no part
    items[position].optimizer = numbers.emplace(owner, static_cast<int32_t>(numbers.size())).first->second;
  }
}

std::vector<std::string> OptimizerSlot::describe() const {
  std::vector<PlanItem> items = plan_items(model_.table(), model_.table().present());
  number(items);
  std::vector<std::string> lines;
  if (std::all_of(items.begin(), items.end(), [](const PlanItem& item) { return item.optimizer == 0; })) return lines;
  std::vector<std::shared_ptr<parts::BlockUpdate>> all = in_passes();
  const std::vector<int32_t> present = model_.table().present();
  const auto first_of = [&](const auto& update) {
    size_t position = 0;
    while (position < present.size() && !update->parameters().has(present[position])) ++position;
    return position;
  };
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return first_of(a) < first_of(b); });
  for (const auto& update : all) {
    const parts::StepRequest request = update->request();
    std::string line = "the optimizer of parameter " + std::to_string(first_of(update)) +
                       ", which takes part in passes, has " + (request.sharded ? "shard" : "no shard") +
                       (request.whole_tensors ? " with whole_tensors" : "") +
                       (request.late_values ? " with late_values" : "") + " and is of";
    for (size_t position = 0; position < present.size(); ++position)
      if (update->parameters().has(present[position])) line += " " + std::to_string(position);
    lines.push_back(std::move(line));
  }
  return lines;
}

void OptimizerSlot::attach_all() const {
  for (const auto& update : in_passes()) model_.passes().attach(update, name_of(*update));
}

parts::OptimizerStage* OptimizerSlot::stage_of(const parts::BlockUpdate& update) const noexcept {
  return model_.is_committed() ? model_.passes().optimizers().stage_of(update) : nullptr;
}

bool OptimizerSlot::is_sharded() const noexcept {
  return model_.is_committed() && std::any_of(all_.begin(), all_.end(), [](const Entry& each) {
           const auto update = each.update.lock();
           return update != nullptr && update->request().sharded;
         });
}

bool OptimizerSlot::steps_in_pass() const noexcept {
  return std::any_of(all_.begin(), all_.end(), [](const Entry& each) {
    const auto update = each.update.lock();
    return update != nullptr && update->request().in_pass();
  });
}

void OptimizerSlot::run_step(const parts::BlockUpdate& update, void* stream) {
  parts::OptimizerStage* const stage = stage_of(update);
  if (stage == nullptr) throw make_error(DDP_ERROR_INTERNAL, "a step of an optimizer that is not attached");
  model_.passes().meter().add([&] {
    group::or_break(model_.group(), group::Part::kExchange, [&] {
      if (const std::optional<Error> failure = stage->run_step("ddp_optimizer_step", stage->is_sharded(), stream))
        throw Error(*failure);
    });
  });
}

}  // namespace ddp::model
