// SPDX-License-Identifier: Apache-2.0
// For a rank with more or less data than the others (ddp/uneven.h): it weighs, skips or abandons passes, and announces its
// last one. A rank without more data joins (join.hpp). Threads: as Model. Tested by conformance/weight_semantics.hpp and
// capi/uneven_test.c.
#pragma once

#include <string>

#include "ddp/uneven.h"
#include "parts/batch/attendance.hpp"

namespace ddp::model {

class Model;

void set_weight(Model& model, double weight);
void set_last_pass(Model& model);
/// A pass to which this rank contributes nothing. Collective. `stream`: as for a model.
void skip_backward(Model& model, void* stream = nullptr);
/// End the open pass without its remaining gradients; it is void on all ranks. Collective.
void abandon_backward(Model& model, std::string reason, void* stream = nullptr);
/// Of the last pass that reduced. Throws INVALID_STATE if none has ended.
[[nodiscard]] const parts::Attendance& last_attendance(const Model& model, const char* function);

}  // namespace ddp::model
