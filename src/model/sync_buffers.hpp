// SPDX-License-Identifier: Apache-2.0
// Sends the buffers of one rank to all, also to the ranks that have joined.
// Collective.
// Tested by conformance/state_test.cpp, conformance/uneven_test.cpp and gpu_host/sync_test.cpp.
#pragma once

#include <cstdint>

#include "parts/batch/join_header.hpp"

namespace ddp::model {

class Model;

/// `stream`: as for a model.
void sync_buffers(Model& model, int32_t root, void* stream = nullptr);
/// The half of a rank that has joined; `roll` is the roll call that it heard.
void answer_sync_buffers(Model& model, const parts::JoinHeader& roll, void* stream);

}  // namespace ddp::model
