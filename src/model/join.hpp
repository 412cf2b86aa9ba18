// Ranks that have run out of data answer those that have not.
//
// A joined rank loops: it hears in the roll call what the others do, and does its half of it. In a pass its weight is 0, so
// its gradients are not read; they receive the result like everybody's. It changes no parameter: how the others use a
// gradient (clipping, schedules, skipped steps) is their program's, which this rank does not run. So at the end the state of
// a rank that trained to the last is sent to all. What lives inside a pass runs here too, because it is the same pass; an
// optimizer that updates its share there stays right.
// Tested by conformance/uneven_threads_test.cpp and conformance/uneven_processes_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::model {

class Model;

/// Until every rank has joined. Returns the lowest rank that trained to the last: its state is the newest. `stream`: as for
/// a model. Collective.
[[nodiscard]] int32_t answer_until_all_joined(Model& model, void* stream);

}  // namespace ddp::model
