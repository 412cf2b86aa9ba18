#include "update/undo.hpp"

#include <cstring>
#include <string>

#include "update/kernels.hpp"

namespace ddp {

template <class Fn>
void Undo::each(const Parameter& parameter, int32_t index, int64_t at, int64_t count, const Fn& fn) const noexcept {
  const Saved& saved = saved_[static_cast<size_t>(index)];
  const int64_t first = saved.owned.first + at;
  std::byte* place = saved.bytes.data();
  const auto one = [&](std::byte* live, int64_t size) {
    fn(live, place + at * size, static_cast<size_t>(count * size));
    place += saved.owned.count * size;
  };
  const int64_t value_size = dtype_size(parameter.value.dtype);
  const int64_t state_size = dtype_size(moment_dtype(parameter.value.dtype));
  for (const Store* store : stores_)
    for (size_t array = 0; array < store->arrays_of(index); ++array) one(store->at(parameter, index, array, first), state_size);
  one(parameter.value.data + first * value_size, value_size);
}

void Undo::add(const Parameter& parameter, int32_t index, const OwnedSpan& owned) {
  size_t arrays = 0;
  for (const Store* store : stores_) arrays += store->arrays_of(index);
  const auto element = static_cast<size_t>(dtype_size(parameter.value.dtype)) + arrays * static_cast<size_t>(dtype_size(moment_dtype(parameter.value.dtype)));
  const std::string what = "what takes back a step of the parameter \"" + parameter.name + "\"";
  saved_.push_back(Saved{owned, 0, LargeArray(static_cast<size_t>(owned.count) * element, what.c_str())});
}

void Undo::clear() noexcept {
  for (Saved& saved : saved_) saved.count = 0;
}

void Undo::save(const Parameter& parameter, int32_t index, int64_t first, int64_t count) noexcept {
  Saved& saved = saved_[static_cast<size_t>(index)];
  each(parameter, index, first - saved.owned.first, count, [](const std::byte* live, std::byte* place, size_t bytes) { std::memcpy(place, live, bytes); });
  saved.count = first - saved.owned.first + count;
}

void Undo::restore(const Table& table) noexcept {
  for (int32_t index = 0; static_cast<size_t>(index) < saved_.size(); ++index) {
    const int64_t count = saved_[static_cast<size_t>(index)].count;
    if (count > 0)
      each(table.parameter(index), index, 0, count, [](std::byte* live, const std::byte* place, size_t bytes) { std::memcpy(live, place, bytes); });
  }
  clear();
}

}  // namespace ddp
