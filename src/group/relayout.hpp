// SPDX-License-Identifier: Apache-2.0
// From the parts of tensors that ranks of one division have to the parts of another: each part is sent from the rank that
// has it to all ranks, chunk by chunk, and each takes what it holds now. Threads: as the group's collectives. Tested by
// capi/keep_test.cpp and conformance/reopen_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "device/gpu/transfer.hpp"
#include "group/generation.hpp"
#include "group/group.hpp"

namespace ddp::group {

/// The GPU of some of them; NULL: all are in host memory.
[[nodiscard]] const gpu::Device* device_of(const std::vector<KeptTensor>& tensors);

/// A part on the rank that gives it.
using FindPart = std::function<const std::byte*(int32_t part)>;

/// Into `tensors`, which are those of the table in its order; one without elements takes nothing. `givers`: by part, the
/// rank that has it. Gives the hash of all that has arrived. Collective; a failure of this rank breaks the group.
[[nodiscard]] uint64_t give_parts(Group& group, const KeptTable& table, const std::vector<int32_t>& givers,
                                  const FindPart& find, const std::vector<KeptTensor>& tensors, gpu::Transfer& transfer);

}  // namespace ddp::group
