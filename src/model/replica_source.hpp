// SPDX-License-Identifier: Apache-2.0
// Whose state all ranks get when they meet: rank 0's at the first commit; after a recovery that of a rank that is whole and
// not ahead of others, because what the others have not done cannot be done again by them alone. When a model is committed
// again that all ranks have reopened, what stays is equal, and rank 0 sends what was added. Pure.
// Tested by unit/model/replica_source_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::model {

/// How far a rank's replica has come.
struct ReplicaVersion {
  bool is_new = true;   // it was in no group yet
  bool loaded = false;  // from a checkpoint, before commit
  bool is_whole = true;
  int64_t final_passes = 0;
  int64_t steps = 0;  // of its optimizers
  uint64_t hash = 0;  // of its parameters; 0: new
  uint64_t rest = 0;  // of its buffers, and of the state that all ranks hold whole; 0: new
  int32_t rank = -1;  // in the group before
  int32_t size = 0;
  bool is_reopened = false;  // its model is building again; then hash and rest tell nothing
  bool is_between = false;   // of its optimizers some have made the step of the last pass, and some have not
};

/// Do both hold the same, whole? What one of them sends changes nothing at the other.
[[nodiscard]] bool are_alike(const ReplicaVersion& a, const ReplicaVersion& b) noexcept;

[[nodiscard]] std::string write_version(const ReplicaVersion& version);
/// Throws INTERNAL for bytes that cannot be one.
[[nodiscard]] ReplicaVersion read_version(std::string_view bytes);

struct ReplicaSource {
  enum class Sends {
    kNothing,  // all have the same
    kAdded,    // parameters and buffers that were added
    kValues,   // parameters and buffers
    kValuesAndStates,
    kNoneIsWhole  // only a checkpoint helps
  };
  Sends sends = Sends::kNothing;
  int32_t rank = 0;
  bool is_recovery = false;  // some rank is not new, and not all have reopened the model
  bool same_ranks = false;   // as in the group before, with the same parameters: what ranks hold in parts still fits
};

[[nodiscard]] ReplicaSource find_source(const std::vector<ReplicaVersion>& by_rank);

}  // namespace ddp::model
