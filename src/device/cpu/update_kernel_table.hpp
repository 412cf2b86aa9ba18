// SPDX-License-Identifier: Apache-2.0
// The loops that each instruction set fills in; kernels.cpp chooses. Built as device/cpu/kernels.hpp describes.
#pragma once

#include "device/cpu/kernels.hpp"
#include "device/cpu/update_kernels.hpp"

namespace ddp::cpu {

struct UpdateKernels {
  using SgdFn = void (*)(const SgdStep&, void* value, const void* grad, const Moved& buffer, int64_t count) noexcept;
  using AdamFn = void (*)(const AdamStep&, void* value, const void* grad, const Moved& exp_avg, const Moved& exp_avg_sq,
                          int64_t count) noexcept;
  using EmaFn = void (*)(double decay, const void* value, void* average, int64_t count) noexcept;

  const char* name;
  template <class Fn>
  struct Ways {
    Fn in_place;  // NULL where the type is no floating type
    Fn moving;    // moments go to another place, past the caches
  };
  Ways<SgdFn> sgd[cpu::kDtypes];  // ddp_dtype is the index
  Ways<AdamFn> adam[cpu::kDtypes];
  EmaFn ema[cpu::kDtypes];
};

extern const UpdateKernels kPortableUpdates;
extern const UpdateKernels kAvx2Updates;
extern const UpdateKernels kAvx512Updates;

}  // namespace ddp::cpu
