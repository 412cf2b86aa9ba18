// SPDX-License-Identifier: Apache-2.0
// How a span of elements is divided among the ranks: rank r owns [cut(r), cut(r + 1)). Cuts are at cache lines, and at pages
// when the span is large, so that no two ranks write to one line. A pure function.
// Tested by unit/exchange/share_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::shm {

struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};

[[nodiscard]] constexpr Share share_of(int64_t count, int64_t element_bytes, int32_t rank, int32_t size) noexcept {
  const int64_t unit = (count * element_bytes / size >= 65536 ? 4096 : 64) / element_bytes;
  const auto cut = [&](int64_t r) {
    if (r == size) return count;
    const int64_t at = count / size * r + count % size * r / size;  // no overflow for any count
    return at / unit * unit;
  };
  return Share{cut(rank), cut(rank + 1)};
}

}  // namespace ddp::shm
