// SPDX-License-Identifier: Apache-2.0
// For a rank with more or less data than the others (ddp/uneven.h): it weighs, skips or abandons passes, and announces its
// last one. A rank without more data joins. Threads: as Model. Tested by conformance/weights_test.cpp and
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

// Ranks that have no more data answer the other ranks.
//
// A joined rank loops: the roll call tells it the calls of the other ranks, and it does its half of them. In a pass its
// weight is 0, so its gradients are not read; they receive the result like those of all ranks. It changes no parameter: how
// the others use a gradient (clipping, schedules, skipped steps) is their program's, which this rank does not run. So at the
// end the state of a rank that trained to the last is sent to all. What lives inside a pass runs here too, because it is the
// same pass; an optimizer that updates its share there stays right.
/// Answers until every rank has joined, and takes the newest state then. `stream`: as for a model. Collective.
void join(Model& model, void* stream = nullptr);

}  // namespace ddp::model
