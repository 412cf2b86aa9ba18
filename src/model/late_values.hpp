// SPDX-License-Identifier: Apache-2.0
// Values that come after the step that made them (parts/step/late_values.hpp), as calls on a model see them. What reads
// values waits for all of them first. If some do not come, the group has broken and the parameters are torn.
// Threads: as Model.
// Tested by conformance/late_values_test.cpp and capi/late_values_test.c.
#pragma once

#include <cstdint>

#include "core/parameter_set.hpp"

namespace ddp::model {

class Model;

/// Until this parameter has its value; at once if none is under way, and before commit. Throws the first cause.
void wait_value(const Model& model, int32_t index);
void wait_values(const Model& model);
/// Of these parameters, whichever optimizer has changed them: one that is gone may have had them.
void wait_values(const Model& model, const ParameterSet& of);
/// Has it come? Never waits.
[[nodiscard]] bool value_is_ready(const Model& model, int32_t index);
/// Until no thread touches the values any more, in a group that has broken too.
void end_values(Model& model) noexcept;

}  // namespace ddp::model
