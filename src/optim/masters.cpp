#include "optim/masters.hpp"

#include <cstring>

#include "device/cpu/arrays.hpp"
#include "device/gpu/span_lists.hpp"

namespace ddp::optim {
namespace {

constexpr int64_t kHalf = 2;  // bytes of an element

}  // namespace

void Masters::begin_anew(const Parameters& table, const std::vector<bool>& which,
                         const std::function<OwnedSpan(int32_t)>& owned) {
  gpu::SpanLists spans;
  for (int32_t index = 0; index < table.parameter_count(); ++index) {
    const Tensor& value = table.parameter(index).value;
    if (!which[static_cast<size_t>(index)] || copies_.arrays_of(index) == 0) continue;
    const OwnedSpan part = owned(index);
    std::byte* const from = value.data + part.first * kHalf;
    if (value.is_on_gpu())
      spans.add(value.dtype, DDP_F32, from, copies_.data(index, 0), part.count);
    else
      cpu::convert(value.dtype, from, DDP_F32, copies_.data(index, 0), part.count);
  }
  if (table.gpu() == nullptr) return;
  spans.copy(*table.gpu(), nullptr, "beginning master weights");
  table.gpu()->synchronize(nullptr);
}

float* Masters::refreshed(const Parameter& parameter, int32_t index, int64_t at, int64_t count) const noexcept {
  auto* const copy = reinterpret_cast<float*>(copies_.at(parameter, index, 0, at));
  const std::byte* const value = parameter.value.data + at * kHalf;
  alignas(64) std::byte rounded[kBlock * kHalf];
  cpu::convert(DDP_F32, copy, parameter.value.dtype, rounded, count);
  if (std::memcmp(rounded, value, static_cast<size_t>(count * kHalf)) == 0) return copy;
  for (int64_t i = 0; i < count; ++i)
    if (std::memcmp(rounded + i * kHalf, value + i * kHalf, kHalf) != 0)
      cpu::convert(parameter.value.dtype, value + i * kHalf, DDP_F32, copy + i, 1);
  return copy;
}

void Masters::widen_gradient(const Parameter& parameter, int64_t at, int64_t count, float* gradient) noexcept {
  cpu::convert(parameter.grad.dtype, parameter.grad.data + at * kHalf, DDP_F32, gradient, count);
}

void Masters::narrow(const Parameter& parameter, int64_t at, int64_t count, const float* copy) noexcept {
  cpu::convert(DDP_F32, copy, parameter.value.dtype, parameter.value.data + at * kHalf, count);
}

}  // namespace ddp::optim
