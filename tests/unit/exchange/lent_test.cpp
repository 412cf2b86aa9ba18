// SPDX-License-Identifier: Apache-2.0
// Memory of the program in a region: others see it where it is, and it comes back.
#include "shm/lent.hpp"

#include "os/huge_pages.hpp"
#include "shm/extent.hpp"
#include "shm/region.hpp"
#include "support/check.hpp"

constexpr int64_t kLimit = int64_t{256} << 20;
constexpr int64_t kBytes = int64_t{5} << 20;

/// Memory that begins this far behind the begin of a page.
struct Own {
  explicit Own(int64_t shift, int64_t bytes = kBytes) : size(bytes), all(static_cast<size_t>(bytes) + 8192) {
    auto* const begin = reinterpret_cast<std::byte*>(all.data());
    const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % 4096);
    data = begin + (4096 - before) + shift;
    for (int64_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i % 251);
  }
  [[nodiscard]] bool is_as_it_was() const {
    for (int64_t i = 0; i < size; ++i)
      if (data[i] != static_cast<std::byte>(i % 251)) return false;
    return true;
  }
  int64_t size;
  std::vector<char> all;
  std::byte* data = nullptr;
};

int64_t held(const shm::Region& region) {
  struct stat file {};
  expect(fstat(region.fd(), &file) == 0, "fstat");
  return static_cast<int64_t>(file.st_blocks) * 512;
}

ddp_case(others_see_the_whole_pages) {
  for (const int64_t shift : {int64_t{0}, int64_t{64}, int64_t{4092}}) {
    shm::Region region(kLimit);
    Own own(shift);
    region.share(own.data, own.size);
    expect(own.is_as_it_was(), "the contents stay");
    const int64_t place = region.place_of(own.data, own.size);
    expect(place != shm::kNotInReach, "it is in reach");
    const shm::Extent extent = shm::extent_of(place, own.size, 1);
    expect_equal(extent.first, shift == 0 ? 0 : 4096 - shift, "from the first whole page on");
    expect(extent.count > own.size - 8192, "to the last one");
    const shm::Mapping other(region.fd(), region.mapping()->size());
    std::byte* const theirs = other.base() + shm::offset_in(place);
    expect(std::memcmp(theirs + extent.first, own.data + extent.first, static_cast<size_t>(extent.count)) == 0, "the same");
    theirs[extent.first] = std::byte{0xee};
    expect(own.data[extent.first] == std::byte{0xee}, "what they write comes here");
    own.data[extent.first] = static_cast<std::byte>(extent.first % 251);
    expect_equal((shm::offset_in(place) + extent.first) % os::kHugePage,
                 static_cast<int64_t>(reinterpret_cast<uintptr_t>(own.data + extent.first) % os::kHugePage),
                 "as far from a huge page's boundary");
    expect(region.unshare(own.data), "the way back");
    expect(own.is_as_it_was(), "the contents stay");
    theirs[extent.first] = std::byte{0xee};
    expect(own.is_as_it_was(), "and others do not reach them");
    expect(!region.unshare(own.data), "once");
    expect_equal(region.place_of(own.data, own.size), shm::kNotInReach, "out of reach");
  }
}

ddp_case(parts_of_it_have_their_places) {
  shm::Region region(kLimit);
  Own own(64);
  region.share(own.data, own.size);
  const int64_t all = shm::offset_in(region.place_of(own.data, own.size));
  expect_equal(region.whole_place_of(own.data, own.size), shm::kNotInReach, "its first bytes are private");
  expect_equal(region.whole_place_of(own.data + 5000, 100'000), all + 5000, "a part inside");
  expect_equal(region.place_of(own.data + 100, 50'000), (all + 100) | shm::kPagesOnly, "a part from the first page on");
  expect_equal(region.place_of(own.data, 100), shm::kNotInReach, "a part without a whole page");
  expect_equal(region.place_of(own.data + own.size - 100'000, 200'000), shm::kNotInReach, "over its end");
  expect_equal(region.place_of(own.data - 10'000, 100'000), shm::kNotInReach, "before its begin");
  expect_equal(region.offset_of(own.data + 5000, 100), shm::kNotInReach, "it is no memory that the region gave out");
}

ddp_case(memory_that_is_shared_is_not_shared_again) {
  shm::Region region(kLimit), another(kLimit);
  Own own(0);
  region.share(own.data, own.size);
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { region.share(own.data, own.size); });
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { region.share(own.data + 4096, 2 << 20); });
  (void)expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { another.share(own.data, own.size); });
  expect(region.unshare(own.data), "the way back");
  another.share(own.data, own.size);
  expect(own.is_as_it_was() && another.unshare(own.data) && own.is_as_it_was(), "then another region may");
}

// An allocator may count on zeros in freed memory of the program, so its place in the file is not used by others meanwhile.
ddp_case(a_place_is_used_again_when_nothing_is_a_mapping_of_it) {
  shm::Region region(kLimit);
  const int64_t before = held(region);
  constexpr size_t kLength = 8 << 20;
  void* memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "memory");
  region.share(memory, kLength);
  const int64_t place = region.place_of(memory, kLength);
  expect(region.unshare(memory), "the way back");
  void* const first = region.alloc(kLength);
  expect(region.offset_of(first, kLength) >= place + static_cast<int64_t>(kLength) ||
             region.offset_of(first, kLength) + static_cast<int64_t>(kLength) <= place,
         "another place");
  std::memset(first, 1, kLength);
  expect(madvise(memory, kLength, MADV_DONTNEED) == 0, "given up");
  const auto* const zeros = static_cast<char*>(memory);
  expect(std::all_of(zeros, zeros + kLength, [](char each) { return each == 0; }), "zeros");
  munmap(memory, kLength);
  Own own(0, kLength);
  region.share(own.data, own.size);  // looks for places that are free now
  expect(region.free(first) && region.unshare(own.data), "freed");
  for (int round = 0; round < 100; ++round) {  // far more than the region has addresses
    memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    region.share(memory, kLength);
    expect(region.unshare(memory), "the way back");
    munmap(memory, kLength);
  }
  expect(held(region) <= before + (int64_t{12} << 20), "and the file has given its pages back");
}

ddp_case(a_renewed_region_shares_it_again) {
  shm::Region region(kLimit);
  Own own(128), freed(0);
  region.share(own.data, own.size);
  const shm::Mapping late(region.fd(), region.mapping()->size());  // of a rank that was given up
  const int64_t before = region.place_of(own.data, own.size);
  region.renew();
  const shm::Extent extent = shm::extent_of(before, own.size, 1);
  std::memset(late.base() + shm::offset_in(before) + extent.first, 0xee, static_cast<size_t>(extent.count));
  expect(own.is_as_it_was(), "the late rank does not reach it");
  const int64_t place = region.place_of(own.data, own.size);
  expect(place != shm::kNotInReach, "it is shared again");
  const shm::Mapping other(region.fd(), region.mapping()->size());
  other.base()[shm::offset_in(place) + 5000] = std::byte{1};
  expect(own.data[5000] == std::byte{1}, "with those who map the new file");
  own.data[5000] = static_cast<std::byte>(5000 % 251);
  region.fence();
  expect_equal(region.place_of(own.data, own.size), shm::kNotInReach, "fenced, it is private");
  other.base()[shm::offset_in(place) + 5000] = std::byte{1};
  expect(own.is_as_it_was(), "and out of reach");
  region.renew();
  expect(region.place_of(own.data, own.size) != shm::kNotInReach && own.is_as_it_was(), "shared again");
}

ddp_case(a_region_that_ends_leaves_private_memory) {
  Own own(64);
  std::optional<shm::Region> region(kLimit);
  region->share(own.data, own.size);
  const shm::Mapping late(region->fd(), region->mapping()->size());
  const int64_t place = shm::offset_in(region->place_of(own.data, own.size));
  region.reset();
  std::memset(late.base() + place + 4096, 0xee, 1 << 20);
  expect(own.is_as_it_was(), "its own");
}

ddp_case(memory_in_use_stays_shared) {
  shm::Region region(kLimit);
  Own own(64);
  region.share(own.data, own.size);
  auto user = region.hold(own.data + 10'000, 1000);
  expect(user != nullptr && region.hold(&region, 1) == nullptr, "a part of it has a user");
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)region.unshare(own.data); });
  expect(region.place_of(own.data, own.size) != shm::kNotInReach, "still shared");
  user.reset();
  expect(region.unshare(own.data) && own.is_as_it_was(), "the way back");
}

ddp_case(freed_memory_is_left_alone) {
  shm::Region region(kLimit);
  constexpr size_t kLength = 4 << 20;
  void* const memory = mmap(nullptr, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "memory");
  region.share(memory, kLength);
  munmap(memory, kLength);
  void* const next = mmap(memory, kLength, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  std::memset(next, 5, kLength);
  const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)region.unshare(memory); });
  expect(text.find("freed") != std::string::npos, text);
  const auto* const all = static_cast<char*>(next);
  expect(std::all_of(all, all + kLength, [](char each) { return each == 5; }), "the memory of its new owner");
  expect(!region.unshare(memory), "and it is forgotten");
  munmap(next, kLength);
}
