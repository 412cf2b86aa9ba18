// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/update_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/dtype.hpp"
#include "device/cpu/reduce.hpp"
#include "device/cpu/update_kernel_table.hpp"

namespace ddp::cpu {
namespace {

/// The loops for the instruction set that device/cpu has chosen, so that there is one choice in the library.
const UpdateKernels& updates() noexcept {
#if defined(__x86_64__)
  const char* const set = cpu::instruction_set();
  if (std::strcmp(set, kAvx512Updates.name) == 0) return kAvx512Updates;
  if (std::strcmp(set, kAvx2Updates.name) == 0) return kAvx2Updates;
#endif
  return kPortableUpdates;
}

constexpr int64_t kEmaBlock = 4096;  // elements; a block of values and one of averages stay in the first-level cache

std::byte* offset(void* array, ddp_dtype dtype, int64_t elements) noexcept {
  return static_cast<std::byte*>(array) + elements * dtype_size(dtype);
}

}  // namespace

void sgd_update(const SgdStep& step, ddp_dtype dtype, void* value, const void* grad, void* buffer, int64_t count) noexcept {
  updates().sgd[dtype].in_place(step, value, grad, {buffer, buffer}, count);
}

void adam_update(const AdamStep& step, ddp_dtype dtype, void* value, const void* grad, void* exp_avg, void* exp_avg_sq,
                 int64_t count) noexcept {
  updates().adam[dtype].in_place(step, value, grad, {exp_avg, exp_avg}, {exp_avg_sq, exp_avg_sq}, count);
}

void sgd_update(const SgdStep& step, ddp_dtype dtype, void* value, const void* grad, const Moved& buffer,
                int64_t count) noexcept {
  updates().sgd[dtype].moving(step, value, grad, buffer, count);
}

void adam_update(const AdamStep& step, ddp_dtype dtype, void* value, const void* grad, const Moved& exp_avg,
                 const Moved& exp_avg_sq, int64_t count) noexcept {
  updates().adam[dtype].moving(step, value, grad, exp_avg, exp_avg_sq, count);
}

void ema_update(const double* decays, int32_t decay_count, ddp_dtype dtype, const void* value, void* const* averages,
                int64_t count) noexcept {
  const auto loop = updates().ema[dtype];
  const auto* const bytes = static_cast<const std::byte*>(value);
  for (int64_t at = 0; at < count; at += kEmaBlock) {
    const int64_t block = std::min(kEmaBlock, count - at);
    for (int32_t k = 0; k < decay_count; ++k)
      loop(decays[k], bytes + at * dtype_size(dtype), offset(averages[k], moment_dtype(dtype), at), block);
  }
}

}  // namespace ddp::cpu
