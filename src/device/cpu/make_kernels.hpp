// The table of an instruction set, from a class Isa (isa_*.hpp): name, kWords (32-bit lanes of a vector) and conversions.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/array_loops.hpp"
#include "device/cpu/fold.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/low_rank_loops.hpp"
#include "device/cpu/wire_loops.hpp"

namespace ddp::cpu {
namespace {

template <class E, int... N>
constexpr void fill_folds(Kernels& table, ddp_dtype dtype, std::integer_sequence<int, N...>) noexcept {
  ((table.to_one[dtype][N + 1][0] = &fold_to_one<E, N + 1, false>), ...);
  ((table.to_one[dtype][N + 1][1] = &fold_to_one<E, N + 1, true>), ...);
  ((table.in_place[dtype][N + 1][0] = &fold_in_place<E, N + 1, false>), ...);
  ((table.in_place[dtype][N + 1][1] = &fold_in_place<E, N + 1, true>), ...);
}

template <class E, class Op>
constexpr PartKernels parts() noexcept {
  return {&fold_part<E, Op, 1, false>, &fold_part<E, Op, kPartInputs, false>, &fold_part<E, Op, 1, true>,
          &fold_part<E, Op, kPartInputs, true>};
}

template <class E>
constexpr void fill_parts(Kernels& table, ddp_dtype dtype) noexcept {
  table.part[dtype][kAdd] = parts<E, Add>();
  table.part[dtype][kMin] = parts<E, Min>();
  table.part[dtype][kMax] = parts<E, Max>();
  table.finish[dtype][0] = &fold_finish<E, false>;
  table.finish[dtype][1] = &fold_finish<E, true>;
}

template <class E, int... N>
constexpr void fill_weighted_folds(Kernels& table, ddp_dtype dtype, std::integer_sequence<int, N...>) noexcept {
  ((table.weighted_to_one[dtype][N + 1] = &fold_weighted_to_one<E, N + 1>), ...);
  ((table.weighted_in_place[dtype][N + 1] = &fold_weighted_in_place<E, N + 1>), ...);
}

template <class E>
constexpr WeightedPartKernels weighted_parts() noexcept {
  return {&fold_weighted_part<E, 1, false>, &fold_weighted_part<E, kPartInputs, false>, &fold_weighted_part<E, 1, true>,
          &fold_weighted_part<E, kPartInputs, true>};
}

/// B is the element by its bits.
template <class Isa, class E, class B>
constexpr void fill_float(Kernels& table, ddp_dtype dtype) noexcept {
  fill_folds<E>(table, dtype, kUpTo<kMaxFold>);
  fill_parts<E>(table, dtype);
  table.weighted[dtype] = weighted_parts<E>();
  fill_weighted_folds<E>(table, dtype, kUpTo<kMaxFold>);
  table.array[dtype] = {&scale_loop<E>, &limit_loop<E>, &sum_loop<Isa, E, Magnitude>, &sum_loop<Isa, E, Square>, &largest_loop<B>,
                        &nonfinite_loop<B>};
}

template <class Wide, class Short>
constexpr WireKernels wire_kernels() noexcept {
  return {{&wire_term<Wide, Short, false, false>, &wire_term<Wide, Short, true, false>},
          {&wire_term<Wide, Short, false, true>, &wire_term<Wide, Short, true, true>},
          &wire_add<Wide, Short>};
}

template <class Isa>
constexpr Kernels make_kernels() noexcept {
  constexpr int kWords = Isa::kWords;
  using Single = F32<kWords>;
  using Half = F16<Isa, kWords>;
  using Brain = BF16<Isa, kWords>;
  Kernels table{};
  table.name = Isa::kName;
  fill_float<Isa, Single, BitElement<uint32_t, kWords, 0x7f800000u>>(table, DDP_F32);
  fill_float<Isa, F64<kWords / 2>, BitElement<uint64_t, kWords / 2, 0x7ff0000000000000u>>(table, DDP_F64);
  fill_float<Isa, Half, BitElement<uint16_t, kWords * 2, 0x7c00u>>(table, DDP_F16);
  fill_float<Isa, Brain, BitElement<uint16_t, kWords * 2, 0x7f80u>>(table, DDP_BF16);
  fill_parts<IntElement<int32_t, uint32_t, kWords>>(table, DDP_I32);
  fill_parts<IntElement<int64_t, uint64_t, kWords / 2>>(table, DDP_I64);
  fill_parts<IntElement<uint8_t, uint8_t, kWords * 4>>(table, DDP_U8);
  table.vector[DDP_F32] = {&dot_loop<float, kWords>, &add_scaled_loop<float, kWords>};
  table.vector[DDP_F64] = {&dot_loop<double, kWords / 2>, &add_scaled_loop<double, kWords / 2>};
  table.wire[0] = wire_kernels<Single, Half>();
  table.wire[1] = wire_kernels<Single, Brain>();
  table.convert[DDP_F32][DDP_F16] = &convert_loop<Single, Half>;
  table.convert[DDP_F32][DDP_BF16] = &convert_loop<Single, Brain>;
  table.convert[DDP_F16][DDP_F32] = &convert_loop<Half, Single>;
  table.convert[DDP_F16][DDP_BF16] = &convert_loop<Half, Brain>;
  table.convert[DDP_BF16][DDP_F32] = &convert_loop<Brain, Single>;
  table.convert[DDP_BF16][DDP_F16] = &convert_loop<Brain, Half>;
  table.convert[DDP_F32][DDP_F64] = &convert_to_double<Isa, Single>;
  table.convert[DDP_F16][DDP_F64] = &convert_to_double<Isa, Half>;
  table.convert[DDP_BF16][DDP_F64] = &convert_to_double<Isa, Brain>;
  table.convert[DDP_F64][DDP_F32] = &convert_loop<DoubleAsFloat<Isa>, F32<kWords / 2>>;
  return table;
}

}  // namespace
}  // namespace ddp::cpu
