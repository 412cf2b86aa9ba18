#include "update/scheduled.hpp"

namespace ddp {

void ScheduledOptimizer::step() {
  model().require_ready("ddp_optimizer_step");
  model().group().check_no_fault();
  const Table& table = model().table();
  schedule_.reserve(table);
  prepare();
  for (int32_t i = 0; i < table.parameter_count(); ++i) {
    const bool used = !model().has_reduced() || model().was_used(i);
    if (!used || schedule_.is_frozen(i)) continue;
    update(i, table.parameter(i));
    schedule_.count_step_of(i);
  }
  schedule_.count_step();
}

std::vector<StateTensor> named_tensors(const Table& table, const Store& store, const std::vector<std::string>& fields) {
  std::vector<StateTensor> tensors;
  for (int32_t i = 0; i < table.parameter_count(); ++i)
    for (size_t k = 0; k < fields.size(); ++k)
      tensors.push_back({table.parameter(i).name + "." + fields[k], store.tensor(table, i, k)});
  return tensors;
}

}  // namespace ddp
