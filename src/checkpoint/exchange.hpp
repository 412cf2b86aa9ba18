// SPDX-License-Identifier: Apache-2.0
// What the ranks tell each other around a checkpoint. All functions are collective.
// Tested by conformance/state_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/manifest.hpp"
#include "core/attempt.hpp"
#include "group/consensus.hpp"

namespace ddp::checkpoint {

/// The error with the public function and, where there are several ranks, the rank: "ddp_state_save_file, on rank 0 (...):
/// ...".
[[nodiscard]] Error with_place(const group::Group& group, const char* function, const Error& error);

/// Run the body on this rank, then learn whether all succeeded; every rank throws the same error if one failed. A rank that
/// has lost its GPU ends the group.
template <class Body>
void together(group::Group& group, const char* function, Body&& body) {
  std::optional<Error> error = try_to(body);
  if (error) error = with_place(group, function, *error);
  if (error && breaks_group(error->status())) group.health().fail(*error);
  group::agree(group, function, error ? &*error : nullptr);
}

/// Throws MISMATCH on every rank, with the same text, unless all passed the same parts and registered the same tensors.
void check_same(group::Group& group, const char* function, const Manifest& manifest);

/// Rank 0's text on every rank.
[[nodiscard]] std::string share_text(group::Group& group, const char* function, std::string text);

}  // namespace ddp::checkpoint
