// What follows when replicas differ: an error on every rank, or the state of the ranks that most agree with for everybody.
// Collective. Tested by process/drift_test.cpp.
#pragma once

#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "param/table.hpp"
#include "reduce/follower.hpp"
#include "sync/replicas.hpp"

namespace ddp {

/// Parameters, buffers and all replicated followers from `drift.source` to everybody, with a line in the log. Throws MISMATCH if there is
/// no source, or if the ranks have different followers; nothing was changed then.
void repair(Group& group, const Table& table, const std::vector<std::shared_ptr<Follower>>& followers, const Drift& drift);

}  // namespace ddp
