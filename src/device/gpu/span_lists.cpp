#include "device/gpu/span_lists.hpp"

#include <algorithm>
#include <limits>

namespace ddp::gpu {

void SpanLists::add(ddp_dtype from_dtype, ddp_dtype to_dtype, void* from, void* to, int64_t count) {
  if (count == 0) return;
  auto list = std::find_if(lists_.begin(), lists_.end(),
                           [&](const List& each) { return each.from_dtype == from_dtype && each.to_dtype == to_dtype; });
  if (list == lists_.end()) list = lists_.insert(list, List{from_dtype, to_dtype, {}});
  list->spans.push_back(ddp_gpu_span{from, to, count});
}

void SpanLists::clear() noexcept {
  for (List& list : lists_) list.spans.clear();
}

void SpanLists::move(const Device& device, double factor, double limit, ddp_gpu_stop stop, void* stream,
                     const char* doing) const {
  const Device::Current current(device);
  each([&](const ddp_gpu_span* spans, int64_t count, ddp_dtype from_dtype, ddp_dtype to_dtype) {
    device.check(device.table().move(spans, count, from_dtype, to_dtype, factor, limit, stop, stream), doing);
  });
}

void SpanLists::copy(const Device& device, void* stream, const char* doing) const {
  move(device, 1.0, std::numeric_limits<double>::infinity(), nullptr, stream, doing);
}

}  // namespace ddp::gpu
