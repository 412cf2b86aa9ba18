// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/norms.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ddp::gpu {

/// The parts are forgotten whatever happens.
struct Norms::Forget {
  device::SpanLists& parts;
  explicit Forget(device::SpanLists& noted) : parts(noted) {}
  Forget(const Forget&) = delete;
  Forget& operator=(const Forget&) = delete;
  ~Forget() { parts.clear(); }
};

Norms::Norms(const Device& device) : device_(device), words_(device, kBytes, "a norm"), host_(device, kBytes, "a norm") {}

int64_t* Norms::start_sum(int32_t p, void* stream) {
  const Forget forget(parts_);
  const Timed timed(device_, stream, trace::GpuWork::kNorm);
  auto* const words = reinterpret_cast<int64_t*>(words_.data());
  const Device::Current current(device_);
  device_.zero(words, kBytes, stream);
  parts_.each([&](const device::Device&, const device::Span* spans, int64_t count, ddp_dtype dtype, ddp_dtype) {
    device_.check(device_.table().add_norm_terms(spans, count, dtype, p, words, stream), "adding up a norm");
  });
  return words;
}

ExactSum Norms::finish(void* stream) {
  device_.copy(host_.host(), words_.data(), kBytes, stream);
  device_.synchronize(stream);
  ExactSum sum;
  std::memcpy(sum.words().data(), host_.host(), static_cast<size_t>(kBytes));
  return sum;
}

ExactSum Norms::sum(int32_t p, void* stream) {
  start_sum(p, stream);
  return finish(stream);
}

double Norms::largest(void* stream) {
  const Forget forget(parts_);
  auto* const bits = reinterpret_cast<uint64_t*>(words_.data());
  const Device::Current current(device_);
  device_.zero(bits, sizeof *bits, stream);
  parts_.each([&](const device::Device&, const device::Span* spans, int64_t count, ddp_dtype dtype, ddp_dtype) {
    device_.check(device_.table().largest(spans, count, dtype, bits, stream), "looking for the largest element");
  });
  device_.copy(host_.host(), bits, sizeof *bits, stream);
  device_.synchronize(stream);
  uint64_t found = 0;
  std::memcpy(&found, host_.host(), sizeof found);
  const double largest = std::bit_cast<double>(found);
  return std::isnan(largest) ? std::numeric_limits<double>::quiet_NaN() : largest;
}

}  // namespace ddp::gpu
