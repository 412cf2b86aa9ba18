// SPDX-License-Identifier: Apache-2.0
// What a step has changed, as it was: values and state arrays of the parts that this rank owns. A block is saved before it
// changes; blocks of a part come in ascending order, each where the last one ended, and a block may hold several parts.
// After the first step nothing is allocated.
// In host memory save and restore are done at once. On a GPU they are only noted; flush carries them out in the order of a
// stream. Memory: as much as the parts and their state, where they are. Tested by unit/optim/masters_test.cpp and
// gpu_host/optimizer_test.cpp.
//
// Arrays with two sides (OptimizerState) are not saved: a step leaves them as they are on one side, and is written to the
// other one. To take it back is to stay there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/parameters.hpp"
#include "device/memory.hpp"
#include "device/span_lists.hpp"
#include "optim/optimizer_state.hpp"

namespace ddp::optim {

class Undo {
 public:
  /// `stores` (arrays of the same parts) outlive this and have been allocated. Throws OUT_OF_MEMORY.
  template <class Owned>
  void allocate(const Parameters& table, const std::vector<OptimizerState*>& stores, Owned&& owned) {
    stores_ = stores;
    std::vector<OwnedSpan> parts;
    std::vector<size_t> first;
    for (auto index = static_cast<int32_t>(first_.size()); index < table.parameter_count(); ++index) {
      first.push_back(saved_.size() + parts.size());
      for (const OwnedSpan& part : owned(index)) parts.push_back(OwnedSpan{index, part.first, part.count});
    }
    if (!first.empty()) add(table, parts, first);
  }
  /// A step is whole: arrays with two sides that it has changed are on the other one from now on.
  void count() noexcept;

  /// A new step: nothing is saved yet. Not between a restoration and its flush.
  void clear() noexcept;
  void save(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept;
  /// Saves a block and lets it change.
  void start_block(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept;
  void end_block() noexcept;
  /// Restores everything saved; blocks that were only noted to be saved are dropped.
  void restore(const Parameters& table) noexcept;
  /// Carry out what was noted, on the GPU of the table. A restoration is carried out whatever has happened to the group.
  /// Throws what a GPU throws.
  void flush(const Parameters& table, void* stream);

 private:
  struct Saved {
    OwnedSpan owned;             // its piece is the parameter
    std::byte* bytes = nullptr;  // the arrays, then the values
    int64_t count = 0;           // saved or noted, from the first on
    int64_t flushed = 0;         // of these, on a GPU: saved
    int side = 0;                // where its arrays were before the step
  };
  /// Memory for parts of parameters that have none yet; `first`: where those of each parameter will be in saved_.
  void add(const Parameters& table, const std::vector<OwnedSpan>& parts, const std::vector<size_t>& first);
  [[nodiscard]] int side_of(int32_t index) const noexcept;
  void go_to_side(const Saved& saved, int side) noexcept;
  [[nodiscard]] int64_t bytes_of(const Parameters& table, const OwnedSpan& part) const noexcept;
  /// Adds what a part on a GPU has live and saved, for `count` elements from `at` on, as spans to or from where it is saved.
  void add_spans(const Parameters& table, const Saved& saved, int64_t at, int64_t count);
  enum class Way { kSave, kRestore };
  /// Done, if work on the parameter's device is immediate.
  [[nodiscard]] bool copy_now(const Parameter& parameter, const Saved& saved, int64_t at, int64_t count,
                              Way way) const noexcept;
  /// Calls fn(live, saved, dtype, count) for the values and each array of `count` elements, `at` behind the part's first.
  template <class Fn>
  void each(const Parameter& parameter, const Saved& saved, int64_t at, int64_t count, const Fn& fn) const;

  std::vector<OptimizerState*> stores_;
  std::vector<size_t> first_;  // by parameter: of its parts in saved_
  std::vector<Saved> saved_;   // by part
  std::vector<device::Memory> memory_;
  std::vector<size_t> noted_;  // parts on a GPU of which something is noted to be saved
  bool goes_back_ = false;     // a restoration is noted
  device::SpanLists spans_;    // of a flush
};

}  // namespace ddp::optim
