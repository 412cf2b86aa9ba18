#include "update/builtin.hpp"

#include "update/kernels.hpp"

namespace ddp {

BuiltinOptimizer::BuiltinOptimizer(std::shared_ptr<Model> model, double rate, std::vector<std::string> moment_names)
    : Optimizer(std::move(model)), moment_names_(std::move(moment_names)), schedule_(rate) {}

void BuiltinOptimizer::allocate() {
  const std::vector<Parameter>& parameters = model().table().parameters();
  std::vector<Array> added;
  for (size_t p = moments_.size() / std::max<size_t>(1, moment_names_.size()); p < parameters.size(); ++p)
    for (size_t m = 0; m < moment_names_.size(); ++m)
      added.emplace_back(parameters[p].value.count * dtype_size(moment_dtype(parameters[p].value.dtype)));
  for (Array& array : added) moments_.push_back(std::move(array));
}

void BuiltinOptimizer::step() {
  model().require_ready("ddp_optimizer_step");
  model().group().check_usable();
  allocate();
  schedule_.count_call();
  std::vector<void*> moments(moment_names_.size());
  for (int32_t index = 0; index < model().table().parameter_count(); ++index) {
    const Schedule::Group group = schedule_.group(index, weight_decay());
    if (!model().was_used(index) || group.rate_scale == 0) continue;
    for (size_t m = 0; m < moments.size(); ++m)
      moments[m] = moments_[static_cast<size_t>(index) * moments.size() + m].data();
    apply(Update{model().table().parameter(index), moments.data(), schedule_.count_step(index), schedule_.rate() * group.rate_scale,
                 group.weight_decay});
  }
}

std::vector<StateTensor> BuiltinOptimizer::state_tensors() {
  allocate();
  std::vector<StateTensor> tensors;
  for (int32_t index = 0; index < model().table().parameter_count(); ++index)
    for (size_t m = 0; m < moment_names_.size(); ++m) {
      const Parameter& parameter = model().table().parameter(index);
      Tensor tensor = parameter.value;
      tensor.dtype = moment_dtype(parameter.value.dtype);
      tensor.data = moments_[static_cast<size_t>(index) * moment_names_.size() + m].data();
      tensors.push_back(StateTensor{parameter.name + "." + moment_names_[m], tensor});
    }
  return tensors;
}

Fields BuiltinOptimizer::state_fields() const {
  Fields fields;
  schedule_.write(fields, model().table());
  write_options(fields);
  return fields;
}

void BuiltinOptimizer::load_fields(const Fields& fields) {
  Schedule schedule = Schedule::read(fields, model().table());
  read_options(fields);
  schedule_ = std::move(schedule);
}

}  // namespace ddp
