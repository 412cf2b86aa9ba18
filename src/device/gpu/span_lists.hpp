// Spans of many tensors, sorted by their types, so that a kernel is called once for each pair of types.
// Room is kept from one use to the next. Threads: one at a time.
// Tested by gpu_host/norms_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "device/gpu/device.hpp"

namespace ddp::gpu {

class SpanLists {
 public:
  /// Nothing if `count` is 0.
  void add(ddp_dtype from_dtype, ddp_dtype to_dtype, void* from, void* to, int64_t count);
  /// A tensor that is read or changed where it lies.
  void add(const Tensor& tensor) { add(tensor.dtype, tensor.dtype, tensor.data, tensor.data, tensor.count); }
  void clear() noexcept;

  /// Calls fn(spans, how many, from_dtype, to_dtype) for each pair of types.
  template <class Fn>
  void each(Fn&& fn) const {
    for (const List& list : lists_)
      if (!list.spans.empty())
        fn(list.spans.data(), static_cast<int64_t>(list.spans.size()), list.from_dtype, list.to_dtype);
  }
  /// The table's move for all spans; `doing` as for Device::check.
  void move(const Device& device, double factor, double limit, ddp_gpu_stop stop, void* stream, const char* doing) const;
  /// As they are.
  void copy(const Device& device, void* stream, const char* doing) const;

 private:
  struct List {
    ddp_dtype from_dtype;
    ddp_dtype to_dtype;
    std::vector<ddp_gpu_span> spans;
  };
  std::vector<List> lists_;
};

}  // namespace ddp::gpu
