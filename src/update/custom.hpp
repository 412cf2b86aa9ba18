// The caller's own update rule. Its callback runs on the thread of the step, once for every used parameter, in index order; a number other than
// 0 ends the step with CALLBACK, and the parameters before it stay updated.
// Tested by unit/update/optimizer_test.cpp and capi/optimizer_test.c.
#pragma once

#include <utility>

#include "ddp/optimizer.h"
#include "update/scheduled.hpp"

namespace ddp {

/// The caller's data, let go of exactly once.
class UserData {
 public:
  UserData(void* data, ddp_release_fn release) noexcept : data_(data), release_(release) {}
  UserData(UserData&& other) noexcept : data_(other.data_), release_(std::exchange(other.release_, nullptr)) {}
  UserData& operator=(UserData&&) = delete;
  ~UserData();
  [[nodiscard]] void* get() const noexcept { return data_; }

 private:
  void* data_;
  ddp_release_fn release_;
};

class Custom final : public ScheduledOptimizer {
 public:
  Custom(std::shared_ptr<Model> model, ddp_update_fn fn, UserData user_data);

  [[nodiscard]] const char* kind() const noexcept override { return "custom"; }
  /// None: what the caller keeps is the caller's to save.
  [[nodiscard]] std::vector<StateTensor> state_tensors() override { return {}; }
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  void load_fields(const std::map<std::string, std::string>& fields) override;
  /// The callback sees the rate alone, so a weight decay above 0 is refused (INVALID_ARGUMENT) rather than ignored.
  void set_group(int32_t index, double weight_decay, double rate_scale) override;
  /// The callback would see gradients that are still scaled: NOT_SUPPORTED.
  void set_loss_scale(const ddp_loss_scale_options& options) override;

 protected:
  void update(const Block& block, const GradShape& shape) override;

 private:
  ddp_update_fn fn_;
  UserData user_data_;
};

}  // namespace ddp
