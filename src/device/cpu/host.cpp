// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/host.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/dtype.hpp"
#include "core/hash.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/master_copies.hpp"
#include "device/cpu/update_kernels.hpp"
#include "device/memory.hpp"

namespace ddp::cpu {
namespace {

void swap_bytes(std::byte* a, std::byte* b, int64_t bytes) noexcept {
  std::array<std::byte, 4096> held;
  for (int64_t at = 0; at < bytes; at += std::ssize(held)) {
    const auto now = static_cast<size_t>(std::min<int64_t>(std::ssize(held), bytes - at));
    std::memcpy(held.data(), a + at, now);
    std::memcpy(a + at, b + at, now);
    std::memcpy(b + at, held.data(), now);
  }
}

AdamStep step_of(const device::AdamRule& rule, const device::GradShape& shape) noexcept {
  return {rule.keep,   rule.weight_decay, rule.beta1,      rule.share1,  rule.beta2,
          rule.share2, rule.size,         rule.root_scale, rule.epsilon, GradShape{shape.scale, shape.limit}};
}

SgdStep step_of(const device::SgdRule& rule, const device::GradShape& shape) noexcept {
  return {rule.rate,
          rule.weight_decay,
          rule.momentum,
          rule.gradient_share,
          static_cast<Momentum>(rule.mode),
          rule.nesterov != 0,
          GradShape{shape.scale, shape.limit}};
}

struct Arrays {
  ddp_dtype dtype;
  void* value;
  const void* grad;
  std::byte* state[2];
  int64_t count;
};

void change(const AdamStep& step, const Arrays& to) noexcept {
  adam_update(step, to.dtype, to.value, to.grad, to.state[0], to.state[1], to.count);
}

void change(const SgdStep& step, const Arrays& to) noexcept {
  sgd_update(step, to.dtype, to.value, to.grad, to.state[0], to.count);
}

template <class Rule>
void update_all(const device::UpdateSpan<Rule>& updates, const device::GradShape& shape) noexcept {
  for (int64_t i = 0; i < updates.count; ++i) {
    const device::Update& each = updates.updates[i];
    const auto step = step_of(updates.rules[each.rule], shape);
    auto* const first = static_cast<std::byte*>(each.state[0]);
    auto* const second = static_cast<std::byte*>(each.state[1]);
    if (each.master == nullptr) {
      change(step, Arrays{updates.dtype, each.value, each.grad, {first, second}, each.count});
      continue;
    }
    const auto behind = [](std::byte* array, int64_t at) {
      return array == nullptr ? array : array + at * dtype_size(DDP_F32);
    };
    update_masters(updates.dtype, each.value, each.grad, static_cast<float*>(each.master), each.count,
                   [&](float* copy, const float* gradient, int64_t at, int64_t n) {
                     change(step, Arrays{DDP_F32, copy, gradient, {behind(first, at), behind(second, at)}, n});
                   });
  }
}

}  // namespace

device::Memory Host::allocate(int64_t bytes, const char* what) const {
  return device::Memory(os::LargeArray(static_cast<size_t>(bytes), what));
}

void Host::copy(void* to, const void* from, int64_t bytes, void*) const {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void Host::apply(const device::Operation& operation, const device::Span* spans, int64_t count, ddp_dtype from_dtype,
                 ddp_dtype to_dtype, const device::Order&) const {
  using Kind = device::Operation::Kind;
  for (const device::Span* span = spans; span != spans + count; ++span) {
    auto* const to = static_cast<std::byte*>(span->to);
    const int64_t bytes = span->count * dtype_size(to_dtype);
    switch (operation.kind) {
      case Kind::kCopy:
        if (span->from == nullptr)
          std::memset(to, 0, static_cast<size_t>(bytes));
        else if (from_dtype == to_dtype)
          std::memcpy(to, span->from, static_cast<size_t>(bytes));
        else
          convert(from_dtype, span->from, to_dtype, to, span->count);
        break;
      case Kind::kScale: scale(to_dtype, to, span->count, operation.number); break;
      case Kind::kLimit: limit(to_dtype, to, span->count, operation.number); break;
      case Kind::kSwap: swap_bytes(static_cast<std::byte*>(span->from), to, bytes); break;
    }
  }
}

void Host::follow(const device::Span* spans, int64_t count, const double* decays, int32_t decay_count, ddp_dtype dtype,
                  const device::Order&) const {
  std::array<void*, device::kMostDecays> averages{};
  for (int64_t i = 0; i < count; ++i) {
    for (int32_t k = 0; k < decay_count; ++k) averages[static_cast<size_t>(k)] = spans[k * count + i].to;
    ema_update(decays, decay_count, dtype, spans[i].from, averages.data(), spans[i].count);
  }
}

void Host::hash(const device::Span* spans, int64_t count, void*, uint64_t* out, void*) const {
  for (int64_t k = 0; k < count; ++k) out[k] = content_hash(spans[k].from, static_cast<size_t>(spans[k].count));
}

void Host::update(const device::UpdateSpan<device::AdamRule>& updates, const device::GradShape& shape,
                  const device::Order&) const {
  update_all(updates, shape);
}

void Host::update(const device::UpdateSpan<device::SgdRule>& updates, const device::GradShape& shape,
                  const device::Order&) const {
  update_all(updates, shape);
}

}  // namespace ddp::cpu

namespace ddp::device {

const Device& host() noexcept {
  static const cpu::Host memory;
  return memory;
}

}  // namespace ddp::device
