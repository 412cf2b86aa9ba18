// SPDX-License-Identifier: Apache-2.0
// The loops that each instruction set fills in; kernels.cpp chooses. Built as device/cpu/kernels.hpp describes.
#pragma once

#include "device/cpu/kernels.hpp"
#include "device/cpu/update_kernels.hpp"

namespace ddp::cpu {

struct UpdateKernels {
  using SgdFn = void (*)(const SgdStep&, void* value, const void* grad, void* buffer, int64_t count) noexcept;
  using AdamFn = void (*)(const AdamStep&, void* value, const void* grad, void* exp_avg, void* exp_avg_sq,
                          int64_t count) noexcept;
  using EmaFn = void (*)(double decay, const void* value, void* average, int64_t count) noexcept;

  const char* name;
  SgdFn sgd[cpu::kDtypes];  // ddp_dtype is the index; NULL where it is no floating type
  AdamFn adam[cpu::kDtypes];
  EmaFn ema[cpu::kDtypes];
};

extern const UpdateKernels kPortableUpdates;
extern const UpdateKernels kAvx2Updates;
extern const UpdateKernels kAvx512Updates;

}  // namespace ddp::cpu
