#include "update/schedule.hpp"

#include <cmath>

#include "base/error.hpp"

namespace ddp {
namespace {

constexpr const char* kWhat = "the optimizer's state";

}  // namespace

void check_not_negative(double value, const char* name) {
  if (!(value >= 0) || !std::isfinite(value))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is %g; it must be a finite number from 0 on", name, value);
}

void check_fraction(double value, const char* name) {
  if (!(value >= 0 && value < 1)) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is %g; it must be from 0 to below 1", name, value);
}

void Schedule::set_rate(double rate) {
  check_not_negative(rate, "rate");
  rate_ = rate;
}

void Schedule::set_group(int32_t index, double weight_decay, double rate_scale) {
  check_not_negative(weight_decay, "weight_decay");
  check_not_negative(rate_scale, "rate_scale");
  const auto at = static_cast<size_t>(index);
  if (groups_.size() <= at) groups_.resize(at + 1);
  groups_[at] = Group{weight_decay, rate_scale};
}

Schedule::Group Schedule::group(int32_t index, double weight_decay) const noexcept {
  const auto at = static_cast<size_t>(index);
  return at < groups_.size() && groups_[at] ? *groups_[at] : Group{weight_decay, 1.0};
}

int64_t Schedule::count_step(int32_t index) {
  const auto at = static_cast<size_t>(index);
  if (steps_.size() <= at) steps_.resize(at + 1, 0);
  return ++steps_[at];
}

int64_t Schedule::steps_of(int32_t index) const noexcept {
  const auto at = static_cast<size_t>(index);
  return at < steps_.size() ? steps_[at] : 0;
}

void Schedule::write(Fields& fields, const Table& table) const {
  fields["rate"] = exact_text(rate_);
  fields["steps"] = std::to_string(calls_);
  for (int32_t index = 0; index < table.parameter_count(); ++index) {
    const std::string& name = table.parameter(index).name;
    if (steps_of(index) != calls_) fields["steps." + name] = std::to_string(steps_of(index));
    const auto at = static_cast<size_t>(index);
    if (at >= groups_.size() || !groups_[at]) continue;
    fields["weight_decay." + name] = exact_text(groups_[at]->weight_decay);
    fields["rate_scale." + name] = exact_text(groups_[at]->rate_scale);
  }
}

Schedule Schedule::read(const Fields& fields, const Table& table) {
  Schedule schedule(read_double(fields, "rate", kWhat));
  schedule.calls_ = read_integer(fields, "steps", kWhat);
  schedule.steps_.assign(table.parameters().size(), schedule.calls_);
  for (int32_t index = 0; index < table.parameter_count(); ++index) {
    const std::string& name = table.parameter(index).name;
    if (fields.count("steps." + name) != 0)
      schedule.steps_[static_cast<size_t>(index)] = read_integer(fields, "steps." + name, kWhat);
    if (fields.count("rate_scale." + name) != 0)
      schedule.set_group(index, read_double(fields, "weight_decay." + name, kWhat), read_double(fields, "rate_scale." + name, kWhat));
  }
  check_not_negative(schedule.rate_, "the saved rate");
  return schedule;
}

}  // namespace ddp
