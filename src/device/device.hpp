// SPDX-License-Identifier: Apache-2.0
// The seam between walks over tensors and their memory: host memory (device/cpu/host) or a GPU
// (device/gpu/device). A walk is written once: it takes the device of a tensor with of(), and lists of spans
// (device/span_lists), of parts of a norm (device/norms) or of updates (device/updates), which group the parts of each
// device. A GPU then gets one launch for many parameters.
//
// Work on a GPU is done in the order of a stream, and its host waits only where a function's comment states it. Host memory
// has no streams: its work is done when the call returns. Errors: OUT_OF_MEMORY for memory; else what a GPU throws
// (device/gpu/device.hpp). Work in host memory throws nothing. Threads: any. Tested by unit/device/host_test.cpp,
// unit/device/gpu_device_test.cpp and gpu_host/gradients_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/parameters.hpp"
#include "core/tensor.hpp"
#include "device/work.h"

namespace ddp::device {

class Memory;

using Span = ddp_gpu_span;
using Update = ddp_gpu_update;
using AdamRule = ddp_gpu_adam_rule;
using SgdRule = ddp_gpu_sgd_rule;
using GradShape = ddp_gpu_shape;
using PlannedRule = ddp_gpu_planned_rule;

/// What is done to each element of a span.
struct Operation {
  enum class Kind {
    kCopy,   // to = from, rounded once if the types differ; from NULL: zeros, if the types are floating
    kScale,  // to = to * number
    kLimit,  // to = limited to [-number, number]; a NaN stays
    kSwap    // the bytes of from and to change places
  };
  Kind kind = Kind::kCopy;
  double number = 1;
  const char* doing = "";  // completes "while ..." in errors
};

/// Averages that follow values in one call of Device::follow.
inline constexpr size_t kMostDecays = 16;

/// When it is done, on a device that has streams.
struct Order {
  void* stream = nullptr;
  ddp_gpu_stop stop = nullptr;  // nothing is changed once this word is set; NULL: no word
};

/// `count` updates of elements of one type, by `rule_count` rules that they name.
template <class Rule>
struct UpdateSpan {
  const Update* updates;
  int64_t count;
  const Rule* rules;
  int64_t rule_count;
  ddp_dtype dtype;
  const PlannedRule* planned = nullptr;  // in the place of `rules`: on a GPU, which wrote them
};

class Device {
 public:
  virtual ~Device() = default;

  /// Host memory: work is done when a call returns, and streams mean nothing. So collecting work gains nothing there.
  [[nodiscard]] virtual bool is_immediate() const noexcept = 0;
  /// Blocks until everything that was enqueued is done.
  virtual void synchronize() const = 0;
  /// Blocks until everything on this stream is done.
  virtual void synchronize(void* stream) const = 0;
  /// Is the stream being captured into a graph?
  [[nodiscard]] virtual bool is_capturing(void* stream) const = 0;
  /// Throws INVALID_STATE in the name of `function` if the stream is being captured into a graph; `why` completes "because
  /// ...".
  virtual void refuse_capture(void* stream, const char* function, const char* why) const = 0;

  /// Calls body() with the device current on this thread, for a program's own work there.
  virtual void within(const std::function<void()>& body) const = 0;

  /// Zeroed memory; may wait. `what` names its purpose.
  [[nodiscard]] virtual Memory allocate(int64_t bytes, const char* what) const = 0;
  /// What allocate() took from the device itself.
  virtual void free(void* memory) const noexcept = 0;
  virtual void copy(void* to, const void* from, int64_t bytes, void* stream) const = 0;

  /// One operation on spans of one pair of types. A change in place has from == to.
  virtual void apply(const Operation& operation, const Span* spans, int64_t count, ddp_dtype from_dtype, ddp_dtype to_dtype,
                     const Order& order) const = 0;
  /// Averages follow values: to = decay * to + (1 - decay) * from. `count` spans for each decay, in the order of the decays
  /// and equal except `to`. `dtype` is that of the values.
  virtual void follow(const Span* spans, int64_t count, const double* decays, int32_t decay_count, ddp_dtype dtype,
                      const Order& order) const = 0;
  /// out[k], in host memory, = a hash of the bytes of span k (`from`, count bytes): the same on all devices of a kind.
  /// `scratch`: room for them on a GPU. The host waits for the stream.
  virtual void hash(const Span* spans, int64_t count, void* scratch, uint64_t* out, void* stream) const = 0;
  /// An optimizer's rule on blocks of parameters (device/cpu/update_kernels.hpp has the formulas).
  virtual void update(const UpdateSpan<AdamRule>& updates, const GradShape& shape, const Order& order) const = 0;
  virtual void update(const UpdateSpan<SgdRule>& updates, const GradShape& shape, const Order& order) const = 0;
};

/// Host memory.
[[nodiscard]] const Device& host() noexcept;

/// The device of a tensor. On a GPU: a group has bound it (group::Gpu::bind).
[[nodiscard]] inline const Device& of(const Tensor& tensor) noexcept {
  return tensor.device != nullptr ? *tensor.device : host();
}

/// The device in whose streams work on these parameters is ordered: the GPU if any is on one.
[[nodiscard]] inline const Device& of(const Parameters& table) noexcept {
  return table.device() != nullptr ? *table.device() : host();
}

}  // namespace ddp::device
