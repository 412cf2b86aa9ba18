// SPDX-License-Identifier: Apache-2.0
#include "optim/param_groups.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "optim/rules.hpp"

namespace ddp::optim {
namespace {

double read_not_negative(const Fields& fields, const std::string& key) {
  const double number = read_number(fields, key);
  check_not_negative(number, "the checkpoint", key.c_str(), DDP_ERROR_IO);
  return number;
}

}  // namespace

void ParamGroups::set_rate(double rate) {
  check_not_negative(rate, "ddp_optimizer_set_rate", "rate");
  rate_ = rate;
}

void ParamGroups::set_parameter_options(const Parameters& table, int32_t index, double weight_decay, double rate_scale) {
  constexpr const char* kFunction = "ddp_optimizer_set_parameter_options";
  if (index < 0 || index >= table.parameter_count())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: index is %d, but the model has %d parameters", kFunction, index,
                     table.parameter_count());
  if (table.parameter(index).removed)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: index is %d, and that parameter was removed", kFunction, index);
  check_not_negative(weight_decay, kFunction, "weight_decay");
  check_not_negative(rate_scale, kFunction, "rate_scale");
  reserve(table);
  entries_[static_cast<size_t>(index)].group = Group{weight_decay, rate_scale};
}

const ParamGroups::Entry* ParamGroups::find(int32_t index) const noexcept {
  const auto position = static_cast<size_t>(index);
  return position < entries_.size() ? &entries_[position] : nullptr;
}

double ParamGroups::rate_of(int32_t index) const noexcept {
  const Entry* const entry = find(index);
  return entry != nullptr && entry->group ? rate_ * entry->group->rate_scale : rate_;
}

double ParamGroups::weight_decay_of(int32_t index) const noexcept {
  const Entry* const entry = find(index);
  return entry != nullptr && entry->group ? entry->group->weight_decay : weight_decay_;
}

double ParamGroups::rate_scale_of(int32_t index) const noexcept {
  const Entry* const entry = find(index);
  return entry != nullptr && entry->group ? entry->group->rate_scale : 1;
}

bool ParamGroups::is_frozen(int32_t index) const noexcept {
  const Entry* const entry = find(index);
  return entry != nullptr && entry->group && entry->group->rate_scale == 0;
}

int64_t ParamGroups::steps_of(int32_t index) const noexcept {
  const Entry* const entry = find(index);
  return entry != nullptr ? entry->steps : 0;
}

void ParamGroups::reserve(const Parameters& table) {
  if (entries_.size() < table.parameters().size()) entries_.resize(table.parameters().size());
}

Fields ParamGroups::fields(const Parameters& table, const ParameterSet& own) const {
  Fields fields;
  int64_t groups = 0;
  for (int32_t i = 0; i < table.parameter_count(); ++i) {
    if (!own.has(i) || table.parameter(i).removed) continue;
    const std::string& name = table.parameter(i).name;
    fields["steps." + name] = std::to_string(steps_of(i));
    const Entry* const entry = find(i);
    if (entry == nullptr || !entry->group) continue;
    fields["group." + name] = number_text(entry->group->weight_decay) + " " + number_text(entry->group->rate_scale);
    ++groups;
  }
  fields["rate"] = number_text(rate_);
  fields["weight_decay"] = number_text(weight_decay_);
  fields["step_count"] = std::to_string(step_count_);
  fields["groups"] = std::to_string(groups);
  return fields;
}

ParamGroups ParamGroups::from_fields(const Fields& fields, const Parameters& table, const ParameterSet& own) {
  ParamGroups schedule(read_not_negative(fields, "rate"), read_not_negative(fields, "weight_decay"));
  schedule.step_count_ = read_count(fields, "step_count");
  schedule.reserve(table);
  int64_t groups = 0;
  for (int32_t i = 0; i < table.parameter_count(); ++i) {
    if (table.parameter(i).removed) continue;
    Entry& entry = schedule.entries_[static_cast<size_t>(i)];
    const std::string& name = table.parameter(i).name;
    if (!own.has(i)) {
      if (fields.count("steps." + name) == 0) continue;
      throw make_error(DDP_ERROR_MISMATCH,
                       "the state is of an optimizer with the parameter \"%s\", which this one has not; give each optimizer "
                       "the same parameters as when it was saved, and the optimizers in the same order",
                       name.c_str());
    }
    entry.steps = read_count(fields, "steps." + name);
    const std::string key = "group." + name;
    if (fields.count(key) == 0) continue;
    const NumberPair pair = read_pair(fields, key);
    check_not_negative(pair.first, "the checkpoint", key.c_str(), DDP_ERROR_IO);
    check_not_negative(pair.second, "the checkpoint", key.c_str(), DDP_ERROR_IO);
    entry.group = Group{pair.first, pair.second};
    ++groups;
  }
  if (groups != read_count(fields, "groups"))
    throw make_error(DDP_ERROR_MISMATCH, "the checkpoint has groups for %lld parameters, of which %lld are in the model",
                     static_cast<long long>(read_count(fields, "groups")), static_cast<long long>(groups));
  return schedule;
}

Fields merge_fields(Fields own, const Fields& other) {
  constexpr std::string_view kSteps = "steps.", kGroup = "group.";
  static_assert(kSteps.size() == kGroup.size());
  const auto starts = [](const std::string& key, std::string_view with) { return key.compare(0, with.size(), with) == 0; };
  for (const auto& [key, value] : other)  // a parameter that the other knows has the other's group, or none
    if (starts(key, kSteps)) own.erase(std::string(kGroup) + key.substr(kSteps.size()));
  for (const auto& [key, value] : other) {
    const bool of_parameter = starts(key, kSteps) || starts(key, kGroup);
    if (!of_parameter || own.count(std::string(kSteps) + key.substr(kSteps.size())) != 0) own[key] = value;
  }
  if (own.count("groups") != 0)
    own["groups"] =
        std::to_string(std::count_if(own.begin(), own.end(), [&](const auto& each) { return starts(each.first, kGroup); }));
  return own;
}

}  // namespace ddp::optim
