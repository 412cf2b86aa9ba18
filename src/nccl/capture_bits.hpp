// SPDX-License-Identifier: Apache-2.0
// Which ranks capture what they do into a CUDA graph: a bit for each, joined over the ranks by a bitwise or. All do or none
// does: captured work is carried out when the graph is launched, and a rank that does not capture waits inside NCCL now.
// Tested by gpu_host/capture_ranks_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "control/control.hpp"
#include "core/error.hpp"

namespace ddp::nccl {

/// Words that have a bit for each rank.
[[nodiscard]] constexpr size_t capture_words(int32_t ranks) noexcept { return (static_cast<size_t>(ranks) + 63) / 64; }

/// Two ranks that do not do alike.
struct UnlikeRanks {
  int32_t captures = 0;
  int32_t does_not = 0;
};
/// The first of each, if `bits` are of some ranks and not of all.
[[nodiscard]] inline std::optional<UnlikeRanks> unlike_ranks(const uint64_t* bits, int32_t ranks) noexcept {
  UnlikeRanks found{-1, -1};
  for (int32_t rank = ranks; rank-- > 0;)
    ((bits[rank / 64] >> (rank % 64) & 1) != 0 ? found.captures : found.does_not) = rank;
  if (found.captures < 0 || found.does_not < 0) return std::nullopt;
  return found;
}

/// DIFFERENT_CALLS. `what`: that they do, as a text for people.
[[nodiscard]] inline Error capture_mismatch(const bootstrap::Control& control, const UnlikeRanks& ranks,
                                            const std::string& what) {
  return Error(
      DDP_ERROR_DIFFERENT_CALLS,
      "the ranks do not capture alike: " + control.member(ranks.captures).name() + " captures " + what +
          " into a CUDA graph, and " + control.member(ranks.does_not).name() +
          " does not; NCCL would wait for ever. Capture the same calls on all ranks, and launch their graphs together");
}

}  // namespace ddp::nccl
