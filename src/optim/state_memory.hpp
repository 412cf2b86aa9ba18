// SPDX-License-Identifier: Apache-2.0
// The place of an optimizer's arrays if not in memory of its own: in shared memory, where they are found when this rank has
// died, or where those of such a rank were found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace ddp::optim {

/// Memory of this many bytes, on a 64-byte boundary; zeroed, or with the contents that were found. Throws OUT_OF_MEMORY.
using StateMemory = std::function<std::shared_ptr<std::byte>(int64_t bytes)>;

}  // namespace ddp::optim
