// How a flat array is cut into segments, and the memory for segments in flight.
// Tested by unit/comm/contribution_test.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/dtype.hpp"
#include "comm/rail/contribution.hpp"

namespace ddp {

/// Which way a reduction takes: along the chain, or by a direct exchange between all members (exchange.hpp).
enum class Route { kChain, kByCost, kDirect };

struct ChainOptions {
  int64_t segment_bytes = 0;  // of accumulators; 0: chosen by the size of the array. Tests use small ones. Equal on all members
  bool raw_first_hop = true;  // the first member adds one array only, so its elements are sent as they are
  Route route = Route::kByCost;  // other than kChain: every member adds one array only. Equal on all members
  bool counts = true;  // the numbers of the stamps are those of the group's collectives (CallState)
};

/// Segments in flight, each way.
inline constexpr int32_t kDepth = 4;
// Measured with tests/bench/gloo_bench: below 512 KiB the messages themselves cost more than the overlap gains; above 2 MiB the scratch
// leaves the caches.
inline constexpr int64_t kLargestSegment = int64_t{2} << 20;
inline constexpr int64_t kSmallestSegment = int64_t{512} << 10;

class Segments {
 public:
  /// A function of its arguments alone, so that all members cut alike.
  Segments(int64_t count, const cpu::ReduceRule& rule, int32_t members, const ChainOptions& options) noexcept
      : count_(count), carry_size_(dtype_size(rule.carry_dtype())), size_(dtype_size(rule.travel_dtype())) {
    int64_t bytes = options.segment_bytes;
    if (bytes <= 0) bytes = std::clamp(count * carry_size_ / (4 * int64_t{members}), kSmallestSegment, kLargestSegment);
    each_ = std::max<int64_t>(1, std::min(bytes, kLargestSegment) / carry_size_);
    if (each_ > 16) each_ -= each_ % 16;
  }

  [[nodiscard]] int64_t number() const noexcept { return number_for(count_); }
  /// Segments that cover elements 0 to `count`.
  [[nodiscard]] int64_t number_for(int64_t count) const noexcept { return (count + each_ - 1) / each_; }
  [[nodiscard]] Span span(int64_t index) const noexcept {
    const int64_t first = index * each_;
    return Span{first, std::min(each_, count_ - first)};
  }
  /// Bytes of one full segment of accumulators.
  [[nodiscard]] int64_t segment_bytes() const noexcept { return each_ * carry_size_; }
  [[nodiscard]] int64_t carry_size() const noexcept { return carry_size_; }
  /// Of an element of a result as it travels, and of a raw term.
  [[nodiscard]] int64_t element_size() const noexcept { return size_; }

 private:
  int64_t count_;
  int64_t carry_size_;
  int64_t size_;
  int64_t each_ = 1;  // elements
};

/// Three rings of kDepth segments.
class Scratch {
 public:
  enum Ring { kUpIn = 0, kUpOut = 1, kDown = 2 };

  void reserve() {
    if (memory_ != nullptr) return;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(3 * kDepth * kLargestSegment))));
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  [[nodiscard]] std::byte* slot(Ring ring, int64_t segment) const noexcept {
    return memory_.get() + (ring * kDepth + segment % kDepth) * kLargestSegment;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace ddp
