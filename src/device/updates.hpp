// SPDX-License-Identifier: Apache-2.0
// Blocks of parameters that an optimizer's rule changes. In host memory that happens at once, so that a block is still in
// cache; on a GPU blocks are noted one by one, then launched together, one call for each type of parameter. A block that
// begins where the last one of its type ended, under the same rule, becomes part of it, and equal rules are noted once; so
// a step over whole parameters and one in small blocks end as the same few launches.
//
// Threads: one at a time. Nothing is allocated once there was room for all parameters.
// Tested by gpu_host/updates_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parameters.hpp"
#include "device/device.hpp"

namespace ddp::device {

/// Rules that a GPU has written (plan_step), one for each parameter; NULL: there are none.
struct PlannedRules {
  const PlannedRule* rules = nullptr;
  int64_t count = 0;
};

/// What is noted for a GPU.
class Updates {
 public:
  Updates() = default;
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;
  virtual ~Updates() = default;

  /// Room for all parameters.
  virtual void reserve(const Parameters& table) = 0;
  virtual void clear() noexcept = 0;
  [[nodiscard]] virtual bool empty() const noexcept = 0;
  /// From the next update on: these, and not the rules that come with an update. For optimizers with such rules.
  virtual void set_planned(const PlannedRules&) noexcept {}
  /// Launch what was noted, in the order of the stream, and forget it. Throws what a GPU throws.
  virtual void launch(const Device& device, const GradShape& shape, const Order& order) = 0;
};

/// Rule: AdamRule or SgdRule.
template <class Rule>
class RuleUpdates final : public Updates {
 public:
  void reserve(const Parameters& table) override;
  void clear() noexcept override;
  [[nodiscard]] bool empty() const noexcept override;
  void set_planned(const PlannedRules& planned) noexcept override { planned_ = planned; }
  void launch(const Device& device, const GradShape& shape, const Order& order) override;

  /// Change a block, now or when what was noted is launched. `update.rule`: the number of its parameter, for planned rules;
  /// `rule` counts where there are none. `shape` is for a change now.
  void add(const Device& device, ddp_dtype dtype, Update update, const Rule& rule, const GradShape& shape);

 private:
  struct List {
    std::vector<Update> updates;
    std::vector<Rule> rules;
  };
  static constexpr size_t kDtypes = 5;  // ddp_dtype is the index; floating ones alone come in
  std::array<List, kDtypes> lists_;
  PlannedRules planned_;
};

extern template class RuleUpdates<AdamRule>;
extern template class RuleUpdates<SgdRule>;

}  // namespace ddp::device
