// SPDX-License-Identifier: Apache-2.0
// Large arrays on pages of 2 MiB: one entry of the processor's translation table for 2 MiB instead of 4 KiB. Where pages are
// translated twice, on virtual machines, that is the difference between half and all of what memory can deliver.
//
// Two ways, both best effort: fresh private memory can be marked before it is touched (map_zeroed); memory of any kind that
// is already in use, including files in memory, can be moved with its contents and addresses (to_huge_pages; Linux 6.1 and
// later).
// If the system's setting for programs is "never" (/sys/kernel/mm/transparent_hugepage/enabled), or memory is marked
// MADV_NOHUGEPAGE, nothing is done. The setting for shared memory (shmem_enabled) is "never" by default and keeps other
// programs' files as they are;
// this library's own memory is moved anyway, unless that setting is "deny".
// Threads: any.
// Tested by unit/os/huge_pages_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/clock.hpp"

namespace ddp::os {

inline constexpr int64_t kHugePage = int64_t{2} << 20;

/// Does the system's setting, given as the text of its file, allow huge pages to programs that request them? A pure
/// function.
[[nodiscard]] bool allows_huge_pages(const char* setting) noexcept;
/// The same for this system; false if it has none.
[[nodiscard]] bool huge_pages_allowed() noexcept;

/// Move the whole huge pages within [data, data + bytes) onto huge pages. Addresses and contents stay, also while other
/// threads use them. Returns how many bytes are on huge pages now; stops when the system refuses and when `limit` has
/// passed.
int64_t to_huge_pages(void* data, int64_t bytes, Deadline limit) noexcept;

/// Addresses for `bytes`, beginning on a huge page's boundary, with nothing behind them; to be mapped over. NULL if there
/// are none.
[[nodiscard]] void* reserve_addresses(size_t bytes) noexcept;

/// Zeroed private memory on a huge page's boundary, on huge pages where the system has some; NULL without memory. Untouched
/// pages cost nothing.
[[nodiscard]] void* map_zeroed(size_t bytes) noexcept;
void unmap(void* memory, size_t bytes) noexcept;

}  // namespace ddp::os
