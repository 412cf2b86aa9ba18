// Stochastic gradient descent with momentum, dampening, weight decay and Nesterov's form: the formula of torch.optim.SGD, whose first
// momentum buffer is the gradient itself, without dampening.
// Tested by ranks/optimizer_test.cpp.
#pragma once

#include "ddp/optimizer.h"
#include "update/builtin.hpp"

namespace ddp {

class Sgd final : public BuiltinOptimizer {
 public:
  /// Throws INVALID_ARGUMENT.
  Sgd(std::shared_ptr<Model> model, const ddp_sgd_options& options);
  [[nodiscard]] const char* kind() const noexcept override { return "sgd"; }

 private:
  void apply(const Update& update) const override;
  [[nodiscard]] double weight_decay() const noexcept override { return options_.weight_decay; }
  void write_options(Fields& fields) const override;
  void read_options(const Fields& fields) override;

  ddp_sgd_options options_;
};

}  // namespace ddp
