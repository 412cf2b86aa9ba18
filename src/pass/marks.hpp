// SPDX-License-Identifier: Apache-2.0
// What is marked of the gradients in a pass, as a whole or range by range, and to which of them this rank contributes.
// Threads: mark and mark_range from any, one gradient's contribution is read when it is complete; the rest from one thread
// at a time.
// Cost: a mark is one atomic operation, a range one lock; nothing is allocated once ranges were as many as they get.
// Tested by conformance/pass_test.cpp and conformance/range_marks_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/parameters.hpp"
#include "pass/incomplete_pass.hpp"

namespace ddp::pass {

// Which elements of a gradient are marked in a pass, for one that is written range by range. A sorted list of ranges that do
// not touch; once it was as long as it gets, nothing is allocated.
class MarkedRanges {
 public:
  void clear() noexcept {
    ranges_.clear();
    marked_ = 0;
  }
  /// False: some of these elements are marked already, and nothing is changed. `count` is 1 or more.
  [[nodiscard]] bool add(int64_t first, int64_t count);
  [[nodiscard]] int64_t marked() const noexcept { return marked_; }
  /// Are all elements from first to end marked?
  [[nodiscard]] bool covers(int64_t first, int64_t end) const noexcept;
  /// Of `elements`, those that are missing: "0 to 15", "0 to 15 and 2 more ranges"; empty if all are marked. `unit`: of them
  /// are one for the caller.
  [[nodiscard]] std::string missing(int64_t elements, int64_t unit) const;

 private:
  struct Range {
    int64_t first;
    int64_t end;
  };
  std::vector<Range> ranges_;
  int64_t marked_ = 0;
};

class Marks {
 public:
  enum class Mark : uint32_t { kNone = 0, kReady = 1, kUnused = 2, kPartly = 3 };

  explicit Marks(const Parameters& table)
      : table_(table), marks_(table.parameters().size()), ranges_(marks_.size()), contributes_(marks_.size(), 0) {}

  void begin_pass() noexcept { epoch_ = (epoch_ + 1) & 0x3fffffff; }
  /// Throws INVALID_STATE if it is marked already or has no gradient yet, INVALID_ARGUMENT if another gradient has its
  /// memory.
  void mark(int32_t index, Mark what) {
    const auto at = static_cast<size_t>(index);
    uint32_t before = marks_[at].load(std::memory_order_relaxed);
    require_own_memory(index);
    if (before >> 2 == epoch_ || !marks_[at].compare_exchange_strong(before, value_of(what))) refuse_second(index);
    if (what == Mark::kReady) contributes_[at] |= kNow;
  }
  /// Elements `first` to first + count, as the program counts them; the gradient is marked when all of them are. Throws
  /// INVALID_ARGUMENT or INVALID_STATE without any effect. Calls seen(ranges), in one order of all ranges: what is marked of
  /// the gradient by now.
  template <class Seen>
  void mark_range(int32_t index, int64_t first, int64_t count, const Seen& seen) {
    check_range(index, first, count);
    const std::lock_guard lock(ranging_);
    seen(add_range(index, first, count));
  }

  [[nodiscard]] bool is_marked(int32_t index) const noexcept {
    return marks_[static_cast<size_t>(index)].load(std::memory_order_acquire) >> 2 == epoch_;
  }
  /// Some of its ranges are marked in this pass, and some are not.
  [[nodiscard]] bool is_partly_marked(int32_t index) const noexcept {
    return marks_[static_cast<size_t>(index)].load(std::memory_order_acquire) == value_of(Mark::kPartly);
  }
  /// It must not be left out, even if others may be: some of its ranges are marked, or it has no memory of its own.
  [[nodiscard]] bool is_needed(int32_t index) const noexcept {
    return is_partly_marked(index) || (!is_marked(index) && table_.contested_by(index) != MemoryRanges::kNobody);
  }
  [[nodiscard]] const Parameters& table() const noexcept { return table_; }
  /// In this pass, or in those that accumulated before it.
  [[nodiscard]] bool contributes(int32_t index) const noexcept { return contributes_[static_cast<size_t>(index)] != 0; }
  /// Those that passes before have accumulated; and one more, before the first pass.
  [[nodiscard]] std::vector<int32_t> accumulated() const;
  void accumulate(int32_t index) noexcept { contributes_[static_cast<size_t>(index)] |= kBefore; }
  /// What is to be reported of this pass. `partial_allowed`: a gradient may be left out, but not a part of it.
  [[nodiscard]] MissingGradients missing(bool partial_allowed) const;

  /// The pass that ends becomes part of what is accumulated (`keep`), or is forgotten.
  void settle(bool keep) noexcept;
  /// Nothing is accumulated.
  void forget() noexcept;

 private:
  static constexpr uint8_t kBefore = 1;  // in passes that accumulated since the last reduction
  static constexpr uint8_t kNow = 2;     // in the open pass

  [[nodiscard]] uint32_t value_of(Mark what) const noexcept { return epoch_ << 2 | static_cast<uint32_t>(what); }
  [[noreturn]] void refuse_second(int32_t index) const;
  /// Throws unless it has memory of its own.
  void require_own_memory(int32_t index) const {
    if (const int32_t other = table_.contested_by(index); other != MemoryRanges::kNobody) refuse_overlap(index, other);
  }
  [[noreturn]] void refuse_overlap(int32_t index, int32_t other) const;
  void check_range(int32_t index, int64_t first, int64_t count) const;
  [[nodiscard]] const MarkedRanges& add_range(int32_t index, int64_t first, int64_t count);
  [[nodiscard]] std::string name_of_missing(int32_t index) const;

  const Parameters& table_;
  uint32_t epoch_ = 0;                        // of the pass
  std::vector<std::atomic<uint32_t>> marks_;  // epoch and Mark, by parameter
  mutable std::mutex ranging_;                // guards ranges_
  std::vector<MarkedRanges> ranges_;          // by parameter, of one that is marked range by range
  std::vector<uint8_t> contributes_;          // by parameter
};

}  // namespace ddp::pass
