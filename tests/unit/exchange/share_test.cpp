// SPDX-License-Identifier: Apache-2.0
// Shares cover a span exactly, in order, and meet on cache lines.
#include "shm/share.hpp"

#include "support/check.hpp"

ddp_case(shares_tile_the_span_on_lines) {
  for (const int64_t element : {1, 2, 4, 8})
    for (int32_t size = 1; size <= 9; ++size)
      for (const int64_t count :
           {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{1000}, int64_t{65537}, int64_t{26214400}}) {
        int64_t at = 0;
        for (int32_t rank = 0; rank < size; ++rank) {
          const shm::Share share = shm::share_of(count, element, rank, size);
          expect_equal(share.begin, at, "begin");
          expect(share.end >= share.begin, "no negative share");
          expect(share.end == count || share.end * element % 64 == 0, "a cut on a cache line");
          at = share.end;
        }
        expect_equal(at, count, "the end");
      }
}

ddp_case(shares_of_a_large_span_are_even) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    const shm::Share share = shm::share_of(30'000'000, 4, rank, 3);
    expect(share.end - share.begin > 9'990'000 && share.end - share.begin < 10'010'000,
           std::to_string(share.end - share.begin));
  }
}
