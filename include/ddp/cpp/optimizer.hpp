// SPDX-License-Identifier: Apache-2.0
/** @file
 * Optimizers: SGD, Adam, and rules of the program as functions.
 */
#ifndef DDP_CPP_OPTIMIZER_HPP
#define DDP_CPP_OPTIMIZER_HPP

#include "ddp/cpp/model.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** What every rule shares, with its defaults. */
using OptimizerOptions = Options<ddp_optimizer_options, ddp_optimizer_options_init>;
/** The rule of SGD, with its defaults. */
using SgdOptions = Options<ddp_sgd_options, ddp_sgd_options_init>;
/** The rule of Adam and AdamW, with its defaults. */
using AdamOptions = Options<ddp_adam_options, ddp_adam_options_init>;
/** A rule of the program, with its defaults. */
using CustomOptions = Options<ddp_custom_options, ddp_custom_options_init>;
/** A loss scale, with its defaults. */
using LossScaleOptions = Options<ddp_loss_scale_options, ddp_loss_scale_options_init>;

/** Changes one slice of a parameter in place, the same on every rank. May run on several threads at once. An exception fails
 * the step with CALLBACK and its text. */
using Update = std::function<void(const ddp_update_slice&)>;

/** Updates the parameters of a model. The model and it end in any order. */
class Optimizer {
 public:
  static Optimizer sgd(Model& model, const SgdOptions& rule = {}, const OptimizerOptions& options = {}) {
    ddp_optimizer* made = nullptr;
    model.checked(ddp_optimizer_create_sgd(model.get(), &rule, &options, &made));
    return Optimizer(made, model.group());
  }
  static Optimizer adam(Model& model, const AdamOptions& rule = {}, const OptimizerOptions& options = {}) {
    ddp_optimizer* made = nullptr;
    model.checked(ddp_optimizer_create_adam(model.get(), &rule, &options, &made));
    return Optimizer(made, model.group());
  }
  /** `states` are the names of the arrays that libddp keeps for each parameter, with commas between them. */
  static Optimizer custom(Model& model, Update update, const std::string& states = {}, const CustomOptions& rule = {},
                          const OptimizerOptions& options = {}) {
    using Box = detail::Boxed<Update>;
    const ddp_update_fn call = [](void* user_data, const ddp_update_slice* slice) -> std::int32_t {
      Box::in(user_data)(*slice); /* what it throws becomes the error's text on the other side */
      return 0;
    };
    ddp_optimizer* made = nullptr;
    model.checked(ddp_optimizer_create_custom(model.get(), &rule, &options, states.empty() ? nullptr : states.c_str(), call,
                                              Box::make(std::move(update)), Box::release, &made));
    return Optimizer(made, model.group());
  }

  ddp_optimizer* get() const noexcept { return handle_.get(); }

  /** Update every parameter that the last pass used. Collective with `shard`. */
  void step(void* stream = nullptr) { check(ddp_optimizer_step(get(), stream), group_); }

  void set_rate(double rate) { check(ddp_optimizer_set_rate(get(), rate), group_); }
  double rate() const { return number(ddp_optimizer_get_rate); }
  /** Steps so far. */
  std::int64_t step_count() const { return number(ddp_optimizer_get_step_count); }
  /** Weight decay and a factor on the rate for one parameter. */
  void set_parameter_options(int index, double weight_decay, double rate_scale = 1) {
    check(ddp_optimizer_set_parameter_options(get(), index, weight_decay, rate_scale), group_);
  }

  void set_loss_scale(const LossScaleOptions& options = {}) { check(ddp_optimizer_set_loss_scale(get(), &options), group_); }
  /** What to multiply the next loss with. */
  double loss_scale() const { return number(ddp_optimizer_get_loss_scale); }
  /** Steps left out because gradients were not finite. */
  std::int64_t skipped_count() const { return number(ddp_optimizer_get_skipped_count); }
  /** 2-norm of the gradients at the last step; -1 if that step did not compute it. */
  double grad_norm() const { return number(ddp_optimizer_get_grad_norm); }

 private:
  Optimizer(ddp_optimizer* owned, ddp_group* group) : handle_(owned), group_(group) {}
  template <class T>
  T number(ddp_status (*get_number)(const ddp_optimizer*, T*)) const {
    T found = 0;
    check(get_number(get(), &found), group_);
    return found;
  }

  Handle<ddp_optimizer, ddp_optimizer_destroy> handle_;
  ddp_group* group_;
};

/** Options of an outer optimizer, with their defaults. */
using OuterOptions = Options<ddp_outer_options, ddp_outer_options_init>;

/** Exchanges the movements of ranks that make steps on their own. As ddp_outer_create. */
class Outer {
 public:
  explicit Outer(Model& model, const OuterOptions& options = {}) : group_(model.group()) {
    ddp_outer* made = nullptr;
    model.checked(ddp_outer_create(model.get(), &options, &made));
    handle_ = Handle<ddp_outer, ddp_outer_destroy>(made);
  }
  ddp_outer* get() const noexcept { return handle_.get(); }
  void step() { check(ddp_outer_step(get()), group_); }
  void sync() { check(ddp_outer_sync(get()), group_); }
  ddp_outer_stats stats() const {
    auto found = sized<ddp_outer_stats>();
    check(ddp_outer_get_stats(get(), &found), group_);
    return found;
  }

 private:
  Handle<ddp_outer, ddp_outer_destroy> handle_;
  ddp_group* group_;
};

}  // namespace cpp17_v1
}  // namespace ddp

#endif
