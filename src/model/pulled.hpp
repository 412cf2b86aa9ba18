// SPDX-License-Identifier: Apache-2.0
// The buckets of a pass one after the other, for a program that works on them itself (a model whose hook is kPulled); see
// parts::ModelPass. Threads: as Model.
// Tested by conformance/hook_test.cpp and process/hook_failure_test.cpp.
#pragma once

#include <memory>
#include <optional>

#include "core/error.hpp"

namespace ddp::parts {
class HookBucket;
}  // namespace ddp::parts
namespace ddp::model {

class Model;

[[nodiscard]] std::shared_ptr<parts::HookBucket> next_bucket(Model& model, bool rest);
void finish_bucket(Model& model, const std::optional<Error>& problem);

}  // namespace ddp::model
