// What the optimizers share: the walk over the parameters, the rate, step counts and groups.
// A parameter takes no part in a step, and keeps value, state and step count, when no rank used it in the last REDUCE pass or when its
// rate factor is 0. After the first step nothing is allocated.
// Tested by unit/update/optimizer_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "update/optimizer.hpp"
#include "update/schedule.hpp"
#include "update/store.hpp"

namespace ddp {

class ScheduledOptimizer : public Optimizer {
 public:
  ScheduledOptimizer(std::shared_ptr<Model> model, Schedule schedule)
      : Optimizer(std::move(model)), schedule_(std::move(schedule)) {}

  /// Memory is allocated before the first parameter changes.
  void step() final;

  void set_rate(double rate) final { schedule_.set_rate(rate); }
  [[nodiscard]] double rate() const noexcept final { return schedule_.rate(); }
  [[nodiscard]] int64_t step_count() const noexcept final { return schedule_.step_count(); }
  void set_group(int32_t index, double weight_decay, double rate_scale) override {
    schedule_.set_group(model().table(), index, weight_decay, rate_scale);
  }

 protected:
  /// Allocate what update() needs.
  virtual void prepare() = 0;
  /// Change one parameter; its step is counted afterwards.
  virtual void update(int32_t index, const Parameter& parameter) = 0;

  [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
  void set_schedule(Schedule schedule) noexcept { schedule_ = std::move(schedule); }

 private:
  Schedule schedule_;
};

/// The tensors of a store whose arrays are named by `fields`.
[[nodiscard]] std::vector<StateTensor> named_tensors(const Table& table, const Store& store, const std::vector<std::string>& fields);

}  // namespace ddp
