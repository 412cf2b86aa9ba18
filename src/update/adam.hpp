// Adam (Kingma and Ba, 2015) and, decoupled, AdamW (Loshchilov and Hutter, 2019): the formulas of torch.optim.Adam and AdamW. Bias
// corrections are computed in F64 from each parameter's own number of steps.
// Tested by ranks/optimizer_test.cpp.
#pragma once

#include "ddp/optimizer.h"
#include "update/builtin.hpp"

namespace ddp {

class Adam final : public BuiltinOptimizer {
 public:
  /// Throws INVALID_ARGUMENT.
  Adam(std::shared_ptr<Model> model, const ddp_adam_options& options);
  [[nodiscard]] const char* kind() const noexcept override { return "adam"; }

 private:
  void apply(const Update& update) const override;
  [[nodiscard]] double weight_decay() const noexcept override { return options_.weight_decay; }
  void write_options(Fields& fields) const override;
  void read_options(const Fields& fields) override;

  ddp_adam_options options_;
};

}  // namespace ddp
