// SPDX-License-Identifier: Apache-2.0
#include "model/late_values.hpp"

#include "core/attempt.hpp"
#include "model/model.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

template <class Do>
void each_late(const Model& model, const Do& what) {
  if (model.is_committed()) model.passes().optimizers().each_late(what);
}

}  // namespace

void wait_value(const Model& model, int32_t index) {
  each_late(model, [&](parts::LateValues& late) { late.wait(index); });
}

void wait_values(const Model& model) {
  if (model.is_committed()) model.pass().await_values();
}

void wait_values(const Model& model, const ParameterSet& of) {
  each_late(model, [&](parts::LateValues& late) {
    for (int32_t index = 0; index < model.table().parameter_count(); ++index)
      if (of.has(index)) late.wait(index);
  });
}

bool value_is_ready(const Model& model, int32_t index) {
  bool ready = true;
  each_late(model, [&](parts::LateValues& late) { ready = late.is_ready(index) && ready; });
  return ready;
}

void end_values(Model& model) noexcept {
  bool whole = true;
  each_late(model, [&](parts::LateValues& late) { whole = late.settle() && whole; });
  if (!whole) model.values().tear();
}

}  // namespace ddp::model
