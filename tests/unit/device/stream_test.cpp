// SPDX-License-Identifier: Apache-2.0
// Copies past the cache are copies: every length and alignment, and no byte outside of them.
#include "device/cpu/stream.hpp"

#include "support/check.hpp"

constexpr int64_t kMargin = 80;

ddp_case(bytes_arrive_and_no_others_change) {
  std::vector<std::byte> from(1024), to(1024);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37 % 251);
  for (int64_t bytes = 0; bytes <= 300; bytes += bytes < 140 ? 1 : 23)
    for (int64_t shift = 0; shift < 64; ++shift) {
      std::fill(to.begin(), to.end(), std::byte{0xff});
      const int64_t begin = kMargin + shift;
      cpu::stream_copy(to.data() + begin, from.data() + shift % 7, bytes);
      cpu::stream_fence();
      for (int64_t i = 0; i < static_cast<int64_t>(to.size()); ++i) {
        const bool inside = i >= begin && i < begin + bytes;
        const std::byte wanted = inside ? from[static_cast<size_t>(i - begin + shift % 7)] : std::byte{0xff};
        expect(to[static_cast<size_t>(i)] == wanted, "byte " + std::to_string(i) + " of a copy of " + std::to_string(bytes));
      }
    }
}

ddp_case(nothing_is_read_for_no_bytes) {
  cpu::stream_copy(nullptr, nullptr, 0);
  cpu::stream_fence();
}
