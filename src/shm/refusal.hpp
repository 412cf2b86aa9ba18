// SPDX-License-Identifier: Apache-2.0
// Which memory of the program is not shared where it is, and why. The way there and back replaces mappings, so memory stays
// as it is when its mapping matters to others: the program (locked, watched, on a device), a runtime (heaps of Go and Java)
// or a driver (registered buffers).
// Tested by unit/exchange/refusal_test.cpp and capi/shared_memory_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "os/mappings.hpp"

namespace ddp::shm {

/// Memory below this is copied about as fast as it is reduced in place, and has fewer whole pages.
inline constexpr int64_t kLeastShared = int64_t{1} << 20;

/// Why [begin, end) cannot be shared, as the end of a sentence about it ("they are locked in memory"); empty: it can.
/// `areas`: with their flags, in order, all that overlap. A pure function.
[[nodiscard]] std::string refusal_of(const std::vector<os::Area>& areas, uintptr_t begin, uintptr_t end);

/// The same for memory of this process, by all that the system has about it.
[[nodiscard]] std::string refusal_of(const void* data, int64_t bytes);

}  // namespace ddp::shm
