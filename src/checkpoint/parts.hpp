// SPDX-License-Identifier: Apache-2.0
// From the parts of a checkpoint to its manifest and its texts, and back into them.
// Tested by conformance/state_test.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/state.hpp"

namespace ddp::gpu {
class Device;
}  // namespace ddp::gpu
namespace ddp::checkpoint {

using Texts = std::map<std::string, std::string>;

inline constexpr const char* kEpochKey = "ddp.epoch";
inline constexpr const char* kStepKey = "ddp.step";
inline constexpr const char* kOptimizerStart = "ddp.optimizer.";  // then its number: its kind; and behind "." its fields
inline constexpr const char* kEmaKey = "ddp.ema";                 // its decays
inline constexpr const char* kEmaFieldKey = "ddp.ema.";
inline constexpr const char* kOuterKey = "ddp.outer";  // "yes"
inline constexpr const char* kOuterFieldKey = "ddp.outer.";
inline constexpr const char* kUserKey = "user.";

/// Allocates the state tensors of optimizer and averages if they were not yet.
[[nodiscard]] Manifest list_parts(const Parts& parts);

/// The GPU of tensors of the manifest, once everything that was enqueued there is done; NULL if all are in host
/// memory.
[[nodiscard]] const gpu::Device* settled_gpu(const Manifest& manifest);

/// What goes into __metadata__ besides what the layout adds.
[[nodiscard]] Texts collect_texts(const Parts& parts, const Counters& counters);

/// The entries of `texts` whose key begins with `start`, without it.
[[nodiscard]] Texts with_start(const Texts& texts, const std::string& start);

/// An optimizer in the texts of a file.
struct SavedOptimizer {
  std::string kind;
  Texts fields;
};
/// By number. Also those of format 1, which had one at most.
[[nodiscard]] std::vector<SavedOptimizer> saved_optimizers(const Texts& texts);

/// Steps that all of them have made; -1: there is none.
[[nodiscard]] int64_t common_steps(const Optimizers& optimizers);

/// Epoch and step; 0 where the file has none. Throws IO if a text is not a number.
[[nodiscard]] Counters read_counters(const Texts& texts);

/// Throws MISMATCH unless the file holds what `parts` asks for: optimizers of the same kinds in the same order, averages.
/// `partial`: it may have none.
void check_kinds(const Parts& parts, const Texts& texts, bool partial);

}  // namespace ddp::checkpoint
