// What a model does between passes with all of its gradients, wherever they lie: on a GPU in the order of a stream. Only
// norms make the host wait, for that one stream. Threads: as Model. Nothing is allocated after the first use of each. Tested
// by gpu_host/gradients_test.cpp and conformance/pass_semantics.hpp.
#pragma once

#include "core/parameters.hpp"
#include "device/norms.hpp"
#include "device/span_lists.hpp"

namespace ddp::model {

class GradientWalk {
 public:
  explicit GradientWalk(const Parameters& table) : table_(table) {}

  void zero(void* stream) {
    spans_.clear();
    for (const Parameter& parameter : table_.parameters())
      spans_.add(device::of(parameter.grad), parameter.grad.dtype, parameter.grad.dtype, nullptr, parameter.grad.data,
                 parameter.grad.count);
    spans_.apply({device::Operation::Kind::kCopy, 1, "setting gradients to zero"}, {stream});
  }
  void change(const device::Operation& operation, void* stream) {
    spans_.clear();
    for (const Parameter& parameter : table_.parameters()) spans_.add(parameter.grad);
    spans_.apply(operation, {stream});
  }
  /// The norms of what add(index, norms) adds for each gradient.
  template <class Add>
  [[nodiscard]] device::Norms& norms(Add&& add) {
    norms_.clear();
    for (int32_t index = 0; index < table_.parameter_count(); ++index) add(index, norms_);
    return norms_;
  }

 private:
  const Parameters& table_;
  device::SpanLists spans_;
  device::Norms norms_;
};

}  // namespace ddp::model
