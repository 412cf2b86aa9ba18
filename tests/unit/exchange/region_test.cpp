// SPDX-License-Identifier: Apache-2.0
// A rank's shared memory and its allocator.
#include "shm/region.hpp"

#include <sys/prctl.h>

#include "os/huge_pages.hpp"
#include "support/check.hpp"
#include "support/huge.hpp"

bool all_are(const std::byte* data, int64_t bytes, std::byte value) {
  for (int64_t i = 0; i < bytes; ++i)
    if (data[i] != value) return false;
  return true;
}

ddp_case(allocations_are_zeroed_aligned_and_apart) {
  shm::Region region(int64_t{256} << 20);
  std::mt19937 random(7);
  std::map<std::byte*, std::pair<int64_t, std::byte>> live;
  for (int round = 0; round < 2000; ++round) {
    if (live.size() < 20 || random() % 2 == 0) {
      const int64_t bytes = 1 + static_cast<int64_t>(random() % (random() % 3 == 0 ? 200'000 : 300));
      auto* data = static_cast<std::byte*>(region.alloc(bytes));
      expect(reinterpret_cast<uintptr_t>(data) % 64 == 0, "alignment");
      expect(all_are(data, bytes, std::byte{0}), "zeroed");
      const auto mark = static_cast<std::byte>(1 + random() % 250);
      std::memset(data, static_cast<int>(mark), static_cast<size_t>(bytes));
      live[data] = {bytes, mark};
    } else {
      auto entry = live.begin();
      std::advance(entry, static_cast<long>(random() % live.size()));
      expect(all_are(entry->first, entry->second.first, entry->second.second), "nobody wrote into another's memory");
      expect(region.free(entry->first), "known");
      live.erase(entry);
    }
  }
}

ddp_case(more_than_there_is_room_for_is_refused) {
  shm::Region region(int64_t{256} << 20);
  const int64_t size = region.mapping()->size();
  for (const int64_t bytes : {size, size + 1, INT64_MAX - 4096, INT64_MAX - 62, INT64_MAX})
    expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { static_cast<void>(region.alloc(bytes)); }, {std::to_string(bytes)});
  expect(region.alloc(1) != nullptr, "there is room for less");
}

ddp_case(another_mapping_sees_the_same_memory) {
  shm::Region region(int64_t{256} << 20);
  auto* data = static_cast<std::byte*>(region.alloc(100));
  data[99] = std::byte{42};
  const shm::Mapping other(region.fd(), region.mapping()->size());
  expect(other.base()[region.offset_of(data, 100) + 99] == std::byte{42}, "the same byte");
}

ddp_case(only_memory_inside_one_allocation_is_in_reach) {
  shm::Region region(int64_t{256} << 20);
  auto* data = static_cast<std::byte*>(region.alloc(1000));
  int local = 0;
  expect(region.offset_of(data, 1000) >= 0 && region.offset_of(data + 500, 500) >= 0, "inside");
  expect_equal(region.offset_of(data + 500, 600), shm::kNotInReach, "over its end");
  expect_equal(region.offset_of(&local, 4), shm::kNotInReach, "the stack");
  expect(region.free(data), "known");
  expect_equal(region.offset_of(data, 1), shm::kNotInReach, "freed");
}

// Blocks that two allocations share stay when one of them goes; those of one alone go back.
ddp_case(memory_goes_back_when_nobody_uses_its_block) {
  shm::Region region(int64_t{256} << 20);
  const auto held = [&] {
    struct stat file {};
    expect(fstat(region.fd(), &file) == 0, "fstat");
    return static_cast<int64_t>(file.st_blocks) * 512;
  };
  const int64_t before = held();
  auto* first = static_cast<std::byte*>(region.alloc(5 << 20));
  auto* second = static_cast<std::byte*>(region.alloc(5 << 20));
  expect(held() >= before + (9 << 20) && held() <= before + (12 << 20), "two arrays, and at most a block more");
  std::memset(second, 7, 5 << 20);
  expect(region.free(first), "known");
  expect(held() <= before + (8 << 20), "the first one's blocks went back");
  expect(all_are(second, 5 << 20, std::byte{7}), "its neighbour's did not");
  auto* third = static_cast<std::byte*>(region.alloc(5 << 20));
  expect(all_are(third, 5 << 20, std::byte{0}), "zeroed again");
  expect(all_are(second, 5 << 20, std::byte{7}), "still the neighbour's");
  expect(region.free(second), "known");
  expect(region.free(third), "known");
  expect_equal(held(), before, "all is back");
}

// A program may refuse huge pages; then memory is the same on small ones.
ddp_case(without_huge_pages_memory_is_the_same) {
  expect(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "refused");
  {
    shm::Region region(int64_t{256} << 20);
    auto* data = static_cast<std::byte*>(region.alloc(5 << 20));
    expect(all_are(data, 5 << 20, std::byte{0}), "zeroed");
    std::memset(data, 3, 5 << 20);
    const shm::Mapping other(region.fd(), region.mapping()->size());
    expect(all_are(other.base() + region.offset_of(data, 5 << 20), 5 << 20, std::byte{3}), "seen by others");
    expect(region.free(data), "known");
  }
  expect(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0, "allowed again");
}

// The mappings of a rank and its peers begin where a huge page can begin.
ddp_case(mappings_begin_where_huge_pages_can_lie) {
  shm::Region region((int64_t{256} << 20) + 4096);
  const shm::Mapping other(region.fd(), region.mapping()->size());
  expect(reinterpret_cast<uintptr_t>(region.mapping()->base()) % os::kHugePage == 0, "the own mapping");
  expect(reinterpret_cast<uintptr_t>(other.base()) % os::kHugePage == 0, "another's");
  expect_equal(region.mapping()->size() % os::kHugePage, int64_t{0}, "whole pages");
}

ddp_case(memory_lies_on_huge_pages_where_the_system_gives_them) {
  const int file = memfd_create("probe", MFD_CLOEXEC);
  expect(file >= 0 && ftruncate(file, os::kHugePage) == 0, "a file in memory");
  const bool moves = system_moves(file);
  close(file);
  shm::Region region(int64_t{256} << 20);
  auto* data = static_cast<std::byte*>(region.alloc(9 << 20));
  const shm::Mapping other(region.fd(), region.mapping()->size());
  std::memset(other.base() + region.offset_of(data, 9 << 20), 1, 9 << 20);
  constexpr long long kMoreThanTheFirst = 2048;  // a machine short of huge pages may have some
  expect(!moves || kib_of(data, "ShmemPmdMapped:") > kMoreThanTheFirst, "the owner's mapping");
  expect(!moves || kib_of(other.base(), "ShmemPmdMapped:") > kMoreThanTheFirst, "another's");
}

ddp_case(what_cannot_be_had_is_an_error) {
  shm::Region region(int64_t{256} << 20);
  (void)expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { (void)region.alloc(int64_t{1} << 40); });
  int local = 0;
  expect(!region.free(&local), "not its own");
  auto* data = region.alloc(64);
  expect(region.free(data), "known");
  expect(!region.free(data), "twice");
}
