// What a model does between passes with the gradients that lie on a GPU: as gradients.cpp, in the order of a stream. Only
// norms make the host wait, for that one stream.
// Threads: as Model. Nothing is allocated after the first use of each.
// Tested by gpu_host/gradients_test.cpp.
#pragma once

#include <memory>

#include "core/exact_sum.hpp"
#include "core/parameters.hpp"
#include "device/gpu/norms.hpp"

namespace ddp::model {

class GpuGradients {
 public:
  GpuGradients(const gpu::Device& device, const Parameters& table) : device_(device), table_(table) {}

  void zero(void* stream);
  /// Multiplied by `factor`, then limited to `limit` (infinity: not at all).
  void change(double factor, double limit, void* stream);

  /// Parts whose norm is asked for next.
  void add(const Tensor& part);
  [[nodiscard]] ExactSum sum(int32_t p, void* stream) { return norms().sum(p, stream); }
  [[nodiscard]] double largest(void* stream) { return norms().largest(stream); }
  /// A norm needs the host to wait; throws INVALID_STATE while the stream is captured.
  void require_no_capture(void* stream, const char* function) const;

 private:
  [[nodiscard]] gpu::Norms& norms();

  const gpu::Device& device_;
  const Parameters& table_;
  gpu::SpanLists spans_;
  std::unique_ptr<gpu::Norms> norms_;  // NULL: not asked for yet
};

}  // namespace ddp::model
