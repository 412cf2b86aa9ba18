// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/stream.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace ddp::cpu {

#if defined(__x86_64__)

namespace {

constexpr int64_t kLine = 64;

// The four stores fill one line, so that it leaves the write-combining buffer as a whole.
void stream_line(std::byte* to, const std::byte* from) noexcept {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, int64_t bytes) noexcept {
  if (bytes <= 0) return;
  const int64_t ahead = (kLine - static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine)) % kLine;
  const int64_t head = std::min(ahead, bytes);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) stream_line(to + at, from + at);
  std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
}

void stream_fence() noexcept { _mm_sfence(); }

#else

void stream_copy(std::byte* to, const std::byte* from, int64_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void stream_fence() noexcept {}

#endif

}  // namespace ddp::cpu
