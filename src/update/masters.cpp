#include "update/masters.hpp"

#include <cstring>

#include "device/cpu/arrays.hpp"

namespace ddp {
namespace {

constexpr int64_t kHalf = 2;  // bytes of an element

}  // namespace

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

}  // namespace ddp
