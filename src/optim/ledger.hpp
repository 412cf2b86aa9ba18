// SPDX-License-Identifier: Apache-2.0
// Records, next to a rank's part of the state in shared memory, which steps can be read there at each moment in which the
// rank may die: a block is saved, then its count is raised, then the block changes. So either the block is unchanged, or its
// old contents are saved. Arrays with two sides keep the old contents on one side, which the word of a part names; after a
// complete step the new contents are on the other side. The stores of a killed process remain, in the order of the program;
// so only the compiler must keep that order. Threads: one writes. A reader whose writer still runs (it was stopped, and is
// left behind) reads the ledger before and after the data that it describes, and retries if it has changed. Tested by
// unit/optim/ledger_test.cpp and capi/kept_copy_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace ddp::optim {

/// Steps from `first` to `last`; none if `last` is less.
struct Versions {
  int64_t first = 0;
  int64_t last = -1;
  [[nodiscard]] bool has(int64_t version) const noexcept { return version >= first && version <= last; }
  [[nodiscard]] bool operator==(const Versions&) const noexcept = default;
};

/// Plain words, zero at first: step 0 is whole, and nothing is saved.
struct Ledger {
  int64_t step = 0;     // what is saved takes this step back; 0: nothing is
  int64_t counted = 0;  // the last step that is known to be whole; -1: none, a load is under way
  int64_t most = 0;     // the newest step that may be whole: the one that is under way
  int64_t parts = 0;    // how many words follow, one for each part

  /// Of a part: elements that are saved, and the side on which its arrays were before (OptimizerState).
  [[nodiscard]] static int64_t part(int64_t count, int side) noexcept { return count * 2 + side; }
  [[nodiscard]] static int64_t count_in(int64_t part) noexcept { return part / 2; }
  [[nodiscard]] static int side_in(int64_t part) noexcept { return static_cast<int>(part % 2); }

  static void put(int64_t& word, int64_t value) noexcept {
    std::atomic_ref<int64_t>(word).store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // what comes later changes what was saved
  }
  [[nodiscard]] static int64_t get(const int64_t& word) noexcept {
    return std::atomic_ref<int64_t>(const_cast<int64_t&>(word)).load(std::memory_order_acquire);
  }
  /// Of a lost rank. It has all of `most` if another rank has counted that step.
  [[nodiscard]] Versions versions() const noexcept {
    const int64_t whole = get(counted), back = get(step);
    if (whole < 0) return {};
    return {back > 0 ? back - 1 : whole, get(most)};
  }
};
static_assert(sizeof(Ledger) == 32);

}  // namespace ddp::optim
