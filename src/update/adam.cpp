#include "update/adam.hpp"

#include <cmath>

#include "update/kernels.hpp"

namespace ddp {
namespace {

constexpr const char* kWhat = "the optimizer's state";

const ddp_adam_options& checked(const ddp_adam_options& options) {
  check_not_negative(options.rate, "rate");
  check_fraction(options.beta1, "beta1");
  check_fraction(options.beta2, "beta2");
  check_not_negative(options.epsilon, "epsilon");
  check_not_negative(options.weight_decay, "weight_decay");
  return options;
}

}  // namespace

Adam::Adam(std::shared_ptr<Model> model, const ddp_adam_options& options)
    : BuiltinOptimizer(std::move(model), checked(options).rate, {"exp_avg", "exp_avg_sq"}), options_(options) {}

void Adam::apply(const Update& update) const {
  const auto count = static_cast<double>(update.count);
  AdamStep step;
  step.keep = options_.decoupled != 0 ? 1 - update.rate * update.weight_decay : 1;
  step.weight_decay = options_.decoupled != 0 ? 0 : update.weight_decay;
  step.beta1 = options_.beta1;
  step.share1 = 1 - options_.beta1;
  step.beta2 = options_.beta2;
  step.share2 = 1 - options_.beta2;
  step.size = update.rate / (1 - std::pow(options_.beta1, count));
  step.root_scale = 1 / std::sqrt(1 - std::pow(options_.beta2, count));
  step.epsilon = options_.epsilon;
  const Parameter& parameter = update.parameter;
  adam_update(step, parameter.value.dtype, parameter.value.data, parameter.grad.data, update.moments[0], update.moments[1],
              parameter.value.count);
}

void Adam::write_options(Fields& fields) const {
  fields["beta1"] = exact_text(options_.beta1);
  fields["beta2"] = exact_text(options_.beta2);
  fields["epsilon"] = exact_text(options_.epsilon);
  fields["weight_decay"] = exact_text(options_.weight_decay);
  fields["decoupled"] = std::to_string(options_.decoupled);
}

void Adam::read_options(const Fields& fields) {
  ddp_adam_options options = options_;
  options.beta1 = read_double(fields, "beta1", kWhat);
  options.beta2 = read_double(fields, "beta2", kWhat);
  options.epsilon = read_double(fields, "epsilon", kWhat);
  options.weight_decay = read_double(fields, "weight_decay", kWhat);
  options.decoupled = static_cast<int32_t>(read_integer(fields, "decoupled", kWhat));
  options_ = checked(options);
}

}  // namespace ddp
