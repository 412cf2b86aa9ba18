// SPDX-License-Identifier: Apache-2.0
// What every optimizer knows about its steps: the rate, how many there were, in all and for each parameter, and which
// parameters have a weight decay and a rate factor of their own. A plain value: loading builds a new one and assigns it.
// Tested by unit/optim/param_groups_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/parameter_set.hpp"
#include "core/parameters.hpp"
#include "optim/fields.hpp"

namespace ddp::optim {

class ParamGroups {
 public:
  ParamGroups(double rate, double weight_decay) : rate_(rate), weight_decay_(weight_decay) {}

  [[nodiscard]] double rate() const noexcept { return rate_; }
  [[nodiscard]] double weight_decay() const noexcept { return weight_decay_; }
  [[nodiscard]] int64_t step_count() const noexcept { return step_count_; }

  /// Throw INVALID_ARGUMENT in the name of ddp_optimizer_set_rate and ddp_optimizer_set_parameter_options.
  void set_rate(double rate);
  void set_parameter_options(const Parameters& table, int32_t index, double weight_decay, double rate_scale);

  [[nodiscard]] double rate_of(int32_t index) const noexcept;
  [[nodiscard]] double weight_decay_of(int32_t index) const noexcept;
  /// The factor on the rate; 1 unless set.
  [[nodiscard]] double rate_scale_of(int32_t index) const noexcept;
  /// A factor of 0: value, state and step count of the parameter stay.
  [[nodiscard]] bool is_frozen(int32_t index) const noexcept;
  [[nodiscard]] int64_t steps_of(int32_t index) const noexcept;

  /// Room for all parameters; counting then allocates nothing.
  void reserve(const Parameters& table);
  void count_step_of(int32_t index) noexcept { ++entries_[static_cast<size_t>(index)].steps; }
  void count_step() noexcept { ++step_count_; }
  /// What was counted elsewhere; behind reserve().
  void set_steps_of(int32_t index, int64_t steps) noexcept { entries_[static_cast<size_t>(index)].steps = steps; }
  void set_step_count(int64_t steps) noexcept { step_count_ = steps; }

  /// rate, weight_decay, step_count, groups (how many), and by parameter name steps.<name> and, where set, group.<name>.
  /// `own`: the parameters of the optimizer.
  [[nodiscard]] Fields fields(const Parameters& table, const ParameterSet& own = {}) const;
  /// Throws MISMATCH, also for steps of a parameter of the model that is not in `own`, or IO.
  [[nodiscard]] static ParamGroups from_fields(const Fields& fields, const Parameters& table, const ParameterSet& own = {});

 private:
  struct Group {
    double weight_decay = 0;
    double rate_scale = 1;
  };
  struct Entry {
    int64_t steps = 0;
    std::optional<Group> group;
  };
  [[nodiscard]] const Entry* find(int32_t index) const noexcept;

  double rate_;
  double weight_decay_;
  int64_t step_count_ = 0;
  std::vector<Entry> entries_;  // by parameter; parameters at the end without an entry may be missing
};

/// The fields of a checkpoint of another model on top of one's own: entries of parameters that `own` does not have are
/// dropped, and entries that it lacks stay.
[[nodiscard]] Fields merge_fields(Fields own, const Fields& other);

}  // namespace ddp::optim
