// SPDX-License-Identifier: Apache-2.0
// Ranks that have no more data answer the other ranks.
//
// A joined rank loops: the roll call tells it the calls of the other ranks, and it does its half of them. In a pass its
// weight is 0, so its gradients are not read; they receive the result like those of all ranks. It changes no parameter: how
// the others use a gradient (clipping, schedules, skipped steps) is their program's, which this rank does not run. So at the
// end the state of a rank that trained to the last is sent to all. What lives inside a pass runs here too, because it is the
// same pass; an optimizer that updates its share there stays right. Tested by conformance/uneven_test.cpp.
#pragma once

namespace ddp::model {

class Model;

/// Answers until every rank has joined, and takes the newest state then. `stream`: as for a model. Collective.
void join(Model& model, void* stream = nullptr);

}  // namespace ddp::model
