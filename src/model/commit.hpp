// SPDX-License-Identifier: Apache-2.0
// Making ranks equal: the same model everywhere, rank 0's values everywhere.
// Collective, all of it.
// Tested by conformance/pass_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "core/parameters.hpp"
#include "ddp/model.h"
#include "group/group.hpp"

namespace ddp::model {

/// Throws MISMATCH, the same text on every rank, unless all ranks describe the same model. Returns the description's hash.
/// One small exchange when they agree; the descriptions themselves are sent only when they do not. `more`: lines of it about
/// buckets and optimizers.
[[nodiscard]] uint64_t agree_on_model(group::Group& group, const Parameters& table, const ddp_model_options& options,
                                      const std::string& hook, std::vector<std::string> more);

/// Values from `root` to all ranks; those on a GPU in the order of the stream.
void distribute(group::Group& group, const std::vector<Tensor>& tensors, int32_t root, void* stream);
/// Values of all parameters and buffers from `root` to all ranks; those on a GPU in the order of the stream.
void distribute_values(group::Group& group, const Parameters& table, int32_t root, void* stream = nullptr);

}  // namespace ddp::model
