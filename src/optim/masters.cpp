// SPDX-License-Identifier: Apache-2.0
#include "optim/masters.hpp"

#include "device/span_lists.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t kHalf = 2;  // bytes of an element

}  // namespace

void Masters::begin_anew(const Parameters& table, const std::vector<bool>& which,
                         const std::function<OwnedParts(int32_t)>& owned) {
  device::SpanLists spans;
  for (int32_t index = 0; index < table.parameter_count(); ++index) {
    const Tensor& value = table.parameter(index).value;
    if (!which[static_cast<size_t>(index)] || copies_.arrays_of(index) == 0) continue;
    for (const OwnedSpan& part : owned(index))
      spans.add(device::of(value), value.dtype, DDP_F32, value.data + part.first * kHalf,
                copies_.at(table.parameter(index), index, 0, part.first), part.count);
  }
  spans.apply({device::Operation::Kind::kCopy, 1, "beginning master weights"}, {});
  device::of(table).synchronize(nullptr);
}

}  // namespace ddp::optim
