// What a step has changed, as it was: values and state arrays of the parts that this rank owns. A block is saved before it
// changes; blocks of a parameter come in ascending order, each where the last one ended. After the first step nothing is
// allocated.
// In host memory save and restore are done at once. On a GPU they are only noted; flush carries them out in the order of a
// stream. Memory: as much as the parts and their state, where they are. Tested by unit/optim/masters_test.cpp and
// gpu_host/optimizer_test.cpp.
#pragma once

#include <cstdint>
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
  void allocate(const Parameters& table, const std::vector<const OptimizerState*>& stores, Owned&& owned) {
    stores_ = stores;
    noted_.reserve(table.parameters().size());
    for (auto index = static_cast<int32_t>(saved_.size()); index < table.parameter_count(); ++index)
      add(table.parameter(index), index, owned(index));
  }
  /// A new step: nothing is saved yet. Not between a restoration and its flush.
  void clear() noexcept;
  void save(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept;
  /// Everything saved goes back; what was only noted to be saved is forgotten.
  void restore(const Parameters& table) noexcept;
  /// Carry out what was noted, on the GPU of the table. A restoration is carried out whatever has happened to the group.
  /// Throws what a GPU throws.
  void flush(const Parameters& table, void* stream);

 private:
  struct Saved {
    OwnedSpan owned;
    int64_t count = 0;     // saved or noted, from the first on
    int64_t flushed = 0;   // of these, on a GPU: saved
    device::Memory bytes;  // the arrays, then the values
  };
  void add(const Parameter& parameter, int32_t index, const OwnedSpan& owned);
  /// Adds what a parameter on a GPU has live and saved, for `count` elements from `at` on, as spans to or from where it is
  /// saved.
  void add_spans(const Parameters& table, int32_t index, int64_t at, int64_t count);
  enum class Way { kSave, kRestore };
  /// Done, if the parameter lies where work is immediate.
  [[nodiscard]] bool copy_now(const Parameter& parameter, int32_t index, int64_t at, int64_t count, Way way) const noexcept;
  /// Calls fn(live, saved, dtype, count) for the values and each array of `count` elements, `at` behind the first owned one.
  template <class Fn>
  void each(const Parameter& parameter, int32_t index, int64_t at, int64_t count, const Fn& fn) const;

  std::vector<const OptimizerState*> stores_;
  std::vector<Saved> saved_;    // by parameter
  std::vector<int32_t> noted_;  // parameters on a GPU of which a part is noted to be saved
  bool goes_back_ = false;      // a restoration is noted
  device::SpanLists spans_;     // of a flush
};

}  // namespace ddp::optim
