// SPDX-License-Identifier: Apache-2.0
// Memory on huge pages: the same bytes at the same addresses, and on a system that has such pages, they are used.
#include "os/huge_pages.hpp"

#include "support/check.hpp"
#include "support/huge.hpp"

constexpr size_t kBytes = size_t{8} << 20;

std::byte pattern(size_t i) { return static_cast<std::byte>(i * 31 % 251); }

void fill(std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) data[i] = pattern(i);
}

bool holds_pattern(const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (data[i] != pattern(i)) return false;
  return true;
}

ddp_case(the_setting_is_read_as_the_system_writes_it) {
  expect(os::allows_huge_pages("[always] madvise never\n"), "always");
  expect(os::allows_huge_pages("always [madvise] never\n"), "madvise");
  expect(!os::allows_huge_pages("always madvise [never]\n"), "never");
  expect(!os::allows_huge_pages(""), "no answer");
}

ddp_case(memory_that_is_moved_keeps_its_contents) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "memory");
  auto* const data = static_cast<std::byte*>(memory);
  fill(data, kBytes);
  const int64_t moved = os::to_huge_pages(data + 100, static_cast<int64_t>(kBytes) - 200, os::Deadline::never());
  expect(moved >= 0 && moved % os::kHugePage == 0 && moved <= static_cast<int64_t>(kBytes) - os::kHugePage,
         "whole pages that lie inside");
  expect(holds_pattern(data, kBytes), "the same bytes");
  expect(moved > 0 || !system_moves(-1), "moved, where the system does that at all");
  if (moved > 0) expect(kib_of(data, "AnonHugePages:") * 1024 >= moved, "the system counts them");
  munmap(memory, kBytes);
}

ddp_case(less_than_a_page_is_left_alone) {
  std::string text(1000, 'x');
  expect_equal(os::to_huge_pages(text.data(), 1000, os::Deadline::never()), int64_t{0}, "nothing to move");
  expect_equal(os::to_huge_pages(nullptr, 0, os::Deadline::never()), int64_t{0}, "nothing at all");
}

ddp_case(memory_whose_owner_refused_is_left_alone) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  (void)madvise(memory, kBytes, MADV_NOHUGEPAGE);
  fill(static_cast<std::byte*>(memory), kBytes);
  expect_equal(os::to_huge_pages(memory, static_cast<int64_t>(kBytes), os::Deadline::never()), int64_t{0}, "refused");
  expect(holds_pattern(static_cast<std::byte*>(memory), kBytes), "the same bytes");
  munmap(memory, kBytes);
}

ddp_case(fresh_memory_is_zero_begins_on_a_page_and_costs_nothing_before_it_is_touched) {
  auto* const data = static_cast<std::byte*>(os::map_zeroed(kBytes + 12345));
  expect(data != nullptr && reinterpret_cast<uintptr_t>(data) % os::kHugePage == 0, "a page's boundary");
  expect_equal(kib_of(data, "Rss:"), 0LL, "resident before");
  for (size_t i = 0; i < kBytes + 12345; i += 97) expect(data[i] == std::byte{0}, "zero");
  fill(data, kBytes + 12345);
  expect(holds_pattern(data, kBytes + 12345), "memory");
  if (os::huge_pages_allowed()) expect(kib_of(data, "AnonHugePages:") > 0, "on huge pages");
  os::unmap(data, kBytes + 12345);
}

ddp_case(addresses_alone_are_on_a_boundary_and_are_mapped_over) {
  void* const place = os::reserve_addresses(kBytes);
  expect(place != nullptr && reinterpret_cast<uintptr_t>(place) % os::kHugePage == 0, "a page's boundary");
  expect(mmap(place, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place,
         "mapped over");
  os::unmap(place, kBytes);
}
