#include "update/sgd.hpp"

#include <cmath>

#include "update/kernels.hpp"

namespace ddp {
namespace {

constexpr const char* kWhat = "the optimizer's state";

const ddp_sgd_options& checked(const ddp_sgd_options& options) {
  check_not_negative(options.rate, "rate");
  check_not_negative(options.momentum, "momentum");
  check_not_negative(options.weight_decay, "weight_decay");
  if (!std::isfinite(options.dampening)) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "dampening is %g", options.dampening);
  if (options.nesterov != 0 && (options.momentum == 0 || options.dampening != 0))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "nesterov needs a momentum above 0 and a dampening of 0; they are %g and %g",
                     options.momentum, options.dampening);
  return options;
}

std::vector<std::string> moment_names(const ddp_sgd_options& options) {
  return options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
}

}  // namespace

Sgd::Sgd(std::shared_ptr<Model> model, const ddp_sgd_options& options)
    : BuiltinOptimizer(std::move(model), checked(options).rate, moment_names(options)), options_(options) {}

void Sgd::apply(const Update& update) const {
  SgdStep step;
  step.rate = update.rate;
  step.weight_decay = update.weight_decay;
  step.momentum = options_.momentum;
  step.gradient_share = 1 - options_.dampening;
  step.nesterov = options_.nesterov != 0;
  if (options_.momentum != 0) step.mode = update.count == 1 ? Momentum::kFirst : Momentum::kRunning;
  const Parameter& parameter = update.parameter;
  void* buffer = options_.momentum != 0 ? update.moments[0] : nullptr;
  sgd_update(step, parameter.value.dtype, parameter.value.data, parameter.grad.data, buffer, parameter.value.count);
}

void Sgd::write_options(Fields& fields) const {
  fields["momentum"] = exact_text(options_.momentum);
  fields["dampening"] = exact_text(options_.dampening);
  fields["weight_decay"] = exact_text(options_.weight_decay);
  fields["nesterov"] = std::to_string(options_.nesterov);
}

void Sgd::read_options(const Fields& fields) {
  ddp_sgd_options options = options_;
  options.momentum = read_double(fields, "momentum", kWhat);
  options.dampening = read_double(fields, "dampening", kWhat);
  options.weight_decay = read_double(fields, "weight_decay", kWhat);
  options.nesterov = static_cast<int32_t>(read_integer(fields, "nesterov", kWhat));
  if ((options.momentum != 0) != (options_.momentum != 0))
    throw make_error(DDP_ERROR_MISMATCH, "the saved optimizer has a momentum of %g, this one %g: one keeps a buffer, the other does not",
                     options.momentum, options_.momentum);
  options_ = checked(options);
}

}  // namespace ddp
