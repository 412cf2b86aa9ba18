// SPDX-License-Identifier: Apache-2.0
// Sends one rank's state to all: when replicas differ, that of the majority; at commit, the state that rank 0 has loaded.
// Tensors on a GPU are read and written in the order of the stream. Collective.
// Tested by conformance/drift_test.cpp and conformance/load_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/parameters.hpp"
#include "group/group.hpp"
#include "model/drift.hpp"
#include "model/replica_state.hpp"

namespace ddp::model {

/// Sends `tensors` and all replicated states from `source` to all ranks. `function` names the caller in errors. Throws
/// MISMATCH if the ranks have different states; nothing was changed then. `begin` is called before anything is changed.
void replicate(group::Group& group, const char* function, std::vector<Tensor> tensors,
               const std::vector<std::shared_ptr<ReplicaState>>& states, int32_t source, void* stream = nullptr,
               const std::function<void()>& begin = {});

/// The settings of a state as one text, equal for equal settings.
[[nodiscard]] std::string settings_of(const ReplicaState& state);
/// The way back. Throws as load_fields().
void load_settings(ReplicaState& state, std::string_view settings);

/// Parameters, buffers and states from `drift.source`, with a line in the log. Throws MISMATCH if there is no source.
void repair(group::Group& group, const char* function, const Parameters& table,
            const std::vector<std::shared_ptr<ReplicaState>>& states, const Drift& drift, void* stream = nullptr);

}  // namespace ddp::model
