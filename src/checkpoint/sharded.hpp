// SPDX-License-Identifier: Apache-2.0
// Sends tensors of which every rank holds a part to rank 0 (saving) and from it (loading), chunk by chunk, so that
// no rank ever holds the whole. Collective: all ranks go through the same chunks in the same order. Threads: as the group's
// collectives.
// Tested by conformance/fused_state_test.cpp and gpu_host/state_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/manifest.hpp"
#include "device/gpu/transfer.hpp"
#include "group/group.hpp"

namespace ddp::checkpoint {

[[nodiscard]] inline bool is_sharded(const Item& item) noexcept { return !item.parts.empty(); }

/// Copies what this rank holds of bytes [at, at + bytes) of the flat tensor into its place in `chunk`. Local.
void put_part(const group::Group& group, gpu::Transfer& transfer, const Item& item, int64_t at, int64_t bytes,
              std::byte* chunk);

/// Afterwards `chunk` holds what each rank had put into it.
void gather_chunk(group::Group& group, const Item& item, int64_t at, int64_t bytes, std::byte* chunk);

/// Takes what this rank holds of the chunk at `at` out of `chunk`. Local.
void keep_part(const group::Group& group, gpu::Transfer& transfer, const Item& item, int64_t at, int64_t bytes,
               const std::byte* chunk);

}  // namespace ddp::checkpoint
