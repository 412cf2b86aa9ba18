// Seam 4: how parameters change. Built-in rules (sgd, adam) and the caller's own (custom) behind one interface of few functions.
// Threads: one at a time.
// Tested by unit/update/optimizer_test.cpp against a float64 oracle.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "reduce/model.hpp"

namespace ddp {

/// One tensor of an optimizer's (or average's) state, by name: "w1.exp_avg".
struct StateTensor {
  std::string name;
  Tensor tensor;
};

class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  virtual ~Optimizer() = default;

  /// "sgd", "adam", "custom"
  [[nodiscard]] virtual const char* kind() const noexcept = 0;
  /// One update of every used parameter.
  virtual void step() = 0;
  /// The state tensors, allocated (zeroed) if they were not yet. Names are "<parameter>.<field>", fields as in PyTorch
  /// (exp_avg, exp_avg_sq, momentum_buffer).
  [[nodiscard]] virtual std::vector<StateTensor> state_tensors() = 0;
  /// Numbers and texts that belong to the state: rate, options, step counts per parameter. All must come back by load_fields.
  [[nodiscard]] virtual std::map<std::string, std::string> state_fields() const = 0;
  /// Throws MISMATCH or IO without any effect when a field is missing or cannot be understood.
  virtual void load_fields(const std::map<std::string, std::string>& fields) = 0;

  virtual void set_rate(double rate) = 0;
  [[nodiscard]] virtual double rate() const noexcept = 0;
  [[nodiscard]] virtual int64_t step_count() const noexcept = 0;
  virtual void set_group(int32_t index, double weight_decay, double rate_scale) = 0;

  [[nodiscard]] Model& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace ddp
