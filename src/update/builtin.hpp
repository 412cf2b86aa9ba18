// The common part of the built-in optimizers: moments per parameter, the schedule, and the walk over used parameters. A rule (sgd, adam)
// adds the formula.
// Threads: one at a time.
// Tested by ranks/optimizer_test.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/memory.hpp"
#include "update/optimizer.hpp"
#include "update/schedule.hpp"

namespace ddp {

class BuiltinOptimizer : public Optimizer {
 public:
  BuiltinOptimizer(std::shared_ptr<Model> model, double rate, std::vector<std::string> moment_names);

  void step() final;
  [[nodiscard]] std::vector<StateTensor> state_tensors() final;
  [[nodiscard]] Fields state_fields() const final;
  void load_fields(const Fields& fields) final;
  void set_rate(double rate) final { schedule_.set_rate(rate); }
  [[nodiscard]] double rate() const noexcept final { return schedule_.rate(); }
  [[nodiscard]] int64_t step_count() const noexcept final { return schedule_.calls(); }
  void set_group(int32_t index, double weight_decay, double rate_scale) final {
    schedule_.set_group(index, weight_decay, rate_scale);
  }

 protected:
  /// One parameter's share of a step.
  struct Update {
    const Parameter& parameter;
    void* const* moments;    // one array per moment name
    int64_t count;           // steps with this one
    double rate;             // with the group's factor
    double weight_decay;
  };
  virtual void apply(const Update& update) const = 0;
  [[nodiscard]] virtual double weight_decay() const noexcept = 0;
  virtual void write_options(Fields& fields) const = 0;
  /// Read and check all options, then take them over: a bad field changes nothing.
  virtual void read_options(const Fields& fields) = 0;

 private:
  void allocate();

  std::vector<std::string> moment_names_;
  std::vector<Array> moments_;  // [parameter * names + name]
  Schedule schedule_;
};

}  // namespace ddp
