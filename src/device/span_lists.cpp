// SPDX-License-Identifier: Apache-2.0
#include "device/span_lists.hpp"

#include <algorithm>

namespace ddp::device {

void SpanLists::add(const Device& device, ddp_dtype from_dtype, ddp_dtype to_dtype, void* from, void* to, int64_t count) {
  if (count == 0) return;
  auto list = std::find_if(lists_.begin(), lists_.end(), [&](const List& each) {
    return each.device == &device && each.from_dtype == from_dtype && each.to_dtype == to_dtype;
  });
  if (list == lists_.end()) list = lists_.insert(list, List{&device, from_dtype, to_dtype, {}});
  list->spans.push_back(Span{from, to, count});
}

void SpanLists::clear() noexcept {
  for (List& list : lists_) list.spans.clear();
}

void SpanLists::apply(const Operation& operation, const Order& order) const {
  each([&](const Device& device, const Span* spans, int64_t count, ddp_dtype from_dtype, ddp_dtype to_dtype) {
    device.apply(operation, spans, count, from_dtype, to_dtype, order);
  });
}

}  // namespace ddp::device
