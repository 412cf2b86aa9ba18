// SPDX-License-Identifier: Apache-2.0
// Spans of many tensors, sorted by device and type, so that each device is called once for each pair of
// types. Room is kept from one use to the next. Threads: one at a time. Tested by gpu_host/gradients_test.cpp and
// unit/device/host_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"

namespace ddp::device {

class SpanLists {
 public:
  /// Nothing if `count` is 0.
  void add(const Device& device, ddp_dtype from_dtype, ddp_dtype to_dtype, void* from, void* to, int64_t count);
  /// A tensor that is read or changed in place.
  void add(const Tensor& tensor) { add(of(tensor), tensor.dtype, tensor.dtype, tensor.data, tensor.data, tensor.count); }
  void clear() noexcept;

  /// Calls fn(device, spans, how many, from_dtype, to_dtype) for each device and pair of types.
  template <class Fn>
  void each(Fn&& fn) const {
    for (const List& list : lists_)
      if (!list.spans.empty())
        fn(*list.device, list.spans.data(), static_cast<int64_t>(list.spans.size()), list.from_dtype, list.to_dtype);
  }
  void apply(const Operation& operation, const Order& order) const;

 private:
  struct List {
    const Device* device;
    ddp_dtype from_dtype;
    ddp_dtype to_dtype;
    std::vector<Span> spans;
  };
  std::vector<List> lists_;
};

}  // namespace ddp::device
