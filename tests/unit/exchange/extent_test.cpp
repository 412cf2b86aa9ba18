// SPDX-License-Identifier: Apache-2.0
// How much of a tensor is in whole pages, against one byte at a time.
#include "shm/extent.hpp"

#include "support/check.hpp"

ddp_case(a_place_is_all_none_or_whole_pages) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const int64_t element = int64_t{1} << random() % 5;
    const int64_t count = static_cast<int64_t>(random() % 6000);
    const int64_t offset = 8192 + static_cast<int64_t>(random() % 9000);
    const std::string what =
        "element " + std::to_string(element) + ", count " + std::to_string(count) + ", offset " + std::to_string(offset);
    const shm::Extent none = shm::extent_of(shm::kNotInReach, count, element);
    expect(none.count == 0, what);
    const shm::Extent whole = shm::extent_of(offset, count, element);
    expect(whole.first == 0 && whole.count == count, what);
    const shm::Extent some = shm::extent_of(offset | shm::kPagesOnly, count, element);
    expect_equal(shm::offset_in(offset | shm::kPagesOnly), offset, what);
    // A byte is in reach if its page is within the tensor as a whole.
    const auto in_reach = [&](int64_t byte) {
      const int64_t page = (offset + byte) / 4096 * 4096;
      return page >= offset && page + 4096 <= offset + count * element;
    };
    for (int64_t i = 0; i < count; ++i) {
      const bool all = in_reach(i * element) && in_reach(i * element + element - 1);
      const bool said = i >= some.first && i < some.first + some.count;
      if (all != said) expect(false, what + ", element number " + std::to_string(i));
    }
  }
}

ddp_case(what_is_common_is_in_both) {
  std::mt19937 random(12);
  for (int round = 0; round < 2000; ++round) {
    const auto any = [&] { return shm::Extent{static_cast<int64_t>(random() % 20), static_cast<int64_t>(random() % 20)}; };
    const shm::Extent a = any(), b = any(), both = shm::common(a, b);
    const auto has = [](const shm::Extent& extent, int64_t i) {
      return i >= extent.first && i < extent.first + extent.count;
    };
    for (int64_t i = 0; i < 50; ++i) expect(has(both, i) == (has(a, i) && has(b, i)), std::to_string(i));
  }
}
