// The caller's own update behind the optimizer seam: the callback is called for every used parameter in index order.
// Tested by ranks/optimizer_test.cpp and capi/optimizer_test.c.
#pragma once

#include "ddp/optimizer.h"
#include "update/optimizer.hpp"
#include "update/schedule.hpp"

namespace ddp {

class Custom final : public Optimizer {
 public:
  Custom(std::shared_ptr<Model> model, ddp_update_fn fn, void* user_data, ddp_release_fn release)
      : Optimizer(std::move(model)), fn_(fn), user_data_(user_data), release_(release) {}
  ~Custom() override {
    if (release_ != nullptr) release_(user_data_);
  }

  [[nodiscard]] const char* kind() const noexcept override { return "custom"; }
  void step() override;
  [[nodiscard]] std::vector<StateTensor> state_tensors() override { return {}; }
  [[nodiscard]] Fields state_fields() const override;
  void load_fields(const Fields& fields) override;
  void set_rate(double rate) override { schedule_.set_rate(rate); }
  [[nodiscard]] double rate() const noexcept override { return schedule_.rate(); }
  [[nodiscard]] int64_t step_count() const noexcept override { return schedule_.calls(); }
  void set_group(int32_t index, double weight_decay, double rate_scale) override;

 private:
  ddp_update_fn fn_;
  void* user_data_;
  ddp_release_fn release_;
  Schedule schedule_{0};
};

}  // namespace ddp
