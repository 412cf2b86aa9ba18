// The reductions of reduce.hpp for rules with a wire type. Internal to this folder: reduce.hpp is what others call.
// Tested by unit/device/wire_test.cpp.
#pragma once

#include <cstdint>

#include "device/cpu/reduce.hpp"

namespace ddp::cpu::wire {

/// carry_out = carry_in + terms of the inputs; carries have the wire type.
void part(const ReduceRule& rule, const void* carry_in, const void* const* in, int32_t in_count, void* carry_out, int64_t count,
          const double* weights) noexcept;

void finish(const ReduceRule& rule, const void* carry, void* const* out, int32_t out_count, int64_t count) noexcept;

/// Both, block by block.
void reduce(const ReduceRule& rule, const void* const* in, int32_t in_count, void* const* out, int32_t out_count, int64_t count,
            const double* weights) noexcept;

}  // namespace ddp::cpu::wire
