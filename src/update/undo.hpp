// What a step has changed, as it was: values and state arrays of the parts that this rank owns. A block is saved before it changes; blocks of a
// parameter come in ascending order. After the first step nothing is allocated.
// Memory: as much as the parts and their state. Tested by unit/update/masters_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.hpp"
#include "param/table.hpp"
#include "update/store.hpp"

namespace ddp {

class Undo {
 public:
  /// `stores` (arrays of the same parts) outlive this and have been allocated. Throws OUT_OF_MEMORY.
  template <class Owned>
  void allocate(const Table& table, const std::vector<const Store*>& stores, Owned&& owned) {
    stores_ = stores;
    for (auto index = static_cast<int32_t>(saved_.size()); index < table.parameter_count(); ++index)
      add(table.parameter(index), index, owned(index));
  }
  /// A new step: nothing is saved yet.
  void clear() noexcept;
  void save(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept;
  /// Everything saved goes back.
  void restore(const Table& table) noexcept;

 private:
  struct Saved {
    OwnedSpan owned;
    int64_t count = 0;  // from the first on
    LargeArray bytes;   // the values, then the arrays
  };
  void add(const Parameter& parameter, int32_t index, const OwnedSpan& owned);
  /// Calls fn(live, saved, bytes) for the values and each array of `count` elements, `at` behind the first owned one.
  template <class Fn>
  void each(const Parameter& parameter, int32_t index, int64_t at, int64_t count, const Fn& fn) const noexcept;

  std::vector<const Store*> stores_;
  std::vector<Saved> saved_;  // by parameter
};

}  // namespace ddp
