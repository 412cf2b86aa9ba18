// Tensors of which every rank holds a part, on their way to rank 0 (saving) and from it (loading), chunk by chunk, so that no rank ever holds
// the whole. Collective: all ranks go through the same chunks in the same order. Threads: as the group's collectives.
// Tested by process/fused_state_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "state/manifest.hpp"

namespace ddp::state {

[[nodiscard]] inline bool is_sharded(const Item& item) noexcept { return !item.parts.empty(); }

/// Brings bytes [at, at + bytes) of the flat tensor to all ranks; the result lies in `buffer`, which grows to at least that.
void gather_chunk(Group& group, const Item& item, int64_t at, int64_t bytes, std::vector<std::byte>& buffer);

/// Takes what this rank holds of the chunk at `at` out of `chunk`.
void keep_part(const Group& group, const Item& item, int64_t at, int64_t bytes, const std::byte* chunk) noexcept;

}  // namespace ddp::state
