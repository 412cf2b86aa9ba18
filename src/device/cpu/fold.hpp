// The reduction loops: inputs are read once into registers, combined in order, finished, and written to one output or over all inputs.
//
// The number of inputs is a template argument, so the pointers live in registers; several vectors are in flight per turn, because one
// chain of additions would wait for itself. What is left at both ends goes through the same arithmetic in a vector that is
// only partly filled. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/elements.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

/// Calls step(i, elements) for pieces of up to E::kLanes elements and steps(i) for Unroll full vectors.
/// The first piece ends where `target` is aligned to a vector, so that only the inputs can straddle cache lines.
template <class E, int Unroll, class Steps, class Step>
[[gnu::always_inline]] inline void walk(const void* target, int target_size, int64_t count, Steps steps, Step step) noexcept {
  constexpr int64_t kStep = int64_t{Unroll} * E::kLanes;
  int64_t i = 0;
  const uint64_t vector_bytes = static_cast<uint64_t>(E::kLanes) * static_cast<uint64_t>(target_size);
  const uint64_t past = reinterpret_cast<uintptr_t>(target) % vector_bytes;
  if (past != 0 && count > 2 * kStep) {
    i = static_cast<int64_t>((vector_bytes - past) / static_cast<uint64_t>(target_size));
    if (i > 0) step(int64_t{0}, i);
  }
  for (; i + kStep <= count; i += kStep) steps(i);
  for (; i < count; i += E::kLanes) step(i, count - i < E::kLanes ? count - i : E::kLanes);
}

template <class E, class Op, int N>
struct Inputs {
  using Acc = typename E::Acc;
  using Raw = typename E::Raw;
  const Byte* at[N];

  template <int... K>
  [[gnu::always_inline]] Acc sum([[maybe_unused]] int64_t i, Acc acc, std::integer_sequence<int, K...>) const noexcept {
    ((acc = Op::template apply<E>(acc, E::widen(get<Raw>(at[N - sizeof...(K) + K] + i * E::kSize)))), ...);
    return acc;
  }
  /// In order, from the first input on.
  [[gnu::always_inline]] Acc sum(int64_t i) const noexcept {
    return sum(i, E::widen(get<Raw>(at[0] + i * E::kSize)), std::make_integer_sequence<int, N - 1>{});
  }
  /// In order, behind a carry.
  [[gnu::always_inline]] Acc sum(int64_t i, Acc carry) const noexcept {
    return sum(i, carry, std::make_integer_sequence<int, N>{});
  }
  /// The same for `n` elements, fewer than a vector.
  [[gnu::always_inline]] Acc some(int64_t i, int64_t n) const noexcept {
    Acc acc = E::widen(get_some<Raw>(at[0] + i * E::kSize, n * E::kSize));
    for (int k = 1; k < N; ++k) acc = Op::template apply<E>(acc, E::widen(get_some<Raw>(at[k] + i * E::kSize, n * E::kSize)));
    return acc;
  }
  [[gnu::always_inline]] Acc some(int64_t i, int64_t n, Acc acc) const noexcept {
    for (int k = 0; k < N; ++k) acc = Op::template apply<E>(acc, E::widen(get_some<Raw>(at[k] + i * E::kSize, n * E::kSize)));
    return acc;
  }
};

template <class E, class Op, int N, int... K>
[[gnu::always_inline]] inline Inputs<E, Op, N> inputs_of(const void* const* in, std::integer_sequence<int, K...>) noexcept {
  return Inputs<E, Op, N>{{static_cast<const Byte*>(in[K])...}};
}

template <class E, int Unroll, int... U, class Sum, class Store>
[[gnu::always_inline]] inline void unrolled(int64_t i, Sum sum, Store store, std::integer_sequence<int, U...>) noexcept {
  typename E::Raw out[Unroll] = {sum(i + U * E::kLanes)...};
  (store(i + U * E::kLanes, out[U]), ...);
}

template <class E, int N>
void fold_to_one(const void* const* in, void* const* out, int64_t count, const Finish& finish) noexcept {
  constexpr int kUnroll = N <= 4 ? 4 : 2;
  const auto inputs = inputs_of<E, Add, N>(in, std::make_integer_sequence<int, N>{});
  const typename E::Mean f = E::mean_of(finish);
  Byte* const to = static_cast<Byte*>(out[0]);
  walk<E, kUnroll>(
      to, E::kSize, count,
      [&](int64_t i) {
        unrolled<E, kUnroll>(
            i, [&](int64_t j) { return E::narrow(E::finish(inputs.sum(j), f)); },
            [&](int64_t j, typename E::Raw raw) { put(to + j * E::kSize, raw); }, std::make_integer_sequence<int, kUnroll>{});
      },
      [&](int64_t i, int64_t n) { put_some(to + i * E::kSize, E::narrow(E::finish(inputs.some(i, n), f)), n * E::kSize); });
}

template <class E, int N, int... K>
[[gnu::always_inline]] inline void fold_over(const void* const* in, int64_t count, const Finish& finish,
                                             std::integer_sequence<int, K...> all) noexcept {
  constexpr int kUnroll = N <= 4 ? 4 : 2;
  const auto inputs = inputs_of<E, Add, N>(in, all);
  const typename E::Mean f = E::mean_of(finish);
  // Written through the inputs' own pointers: twice as many pointers would not fit in registers.
  walk<E, kUnroll>(
      in[0], E::kSize, count,
      [&](int64_t i) {
        unrolled<E, kUnroll>(
            i, [&](int64_t j) { return E::narrow(E::finish(inputs.sum(j), f)); },
            [&](int64_t j, typename E::Raw raw) { (put(const_cast<Byte*>(inputs.at[K]) + j * E::kSize, raw), ...); },
            std::make_integer_sequence<int, kUnroll>{});
      },
      [&](int64_t i, int64_t n) {
        const typename E::Raw raw = E::narrow(E::finish(inputs.some(i, n), f));
        (put_some(const_cast<Byte*>(inputs.at[K]) + i * E::kSize, raw, n * E::kSize), ...);
      });
}

template <class E, int N>
void fold_in_place(const void* const* in, void* const*, int64_t count, const Finish& finish) noexcept {
  fold_over<E, N>(in, count, finish, std::make_integer_sequence<int, N>{});
}

template <class E, class Op, int N, bool Carry>
void fold_part(const void* carry_in, const void* const* in, void* carry_out, int64_t count) noexcept {
  using Acc = typename E::Acc;
  constexpr int kUnroll = 2;
  const auto inputs = inputs_of<E, Op, N>(in, std::make_integer_sequence<int, N>{});
  const Byte* const from = static_cast<const Byte*>(carry_in);
  Byte* const to = static_cast<Byte*>(carry_out);
  const auto full = [&](int64_t i) {
    if constexpr (Carry) return inputs.sum(i, get<Acc>(from + i * E::kAccSize));
    else return inputs.sum(i);
  };
  walk<E, kUnroll>(
      to, E::kAccSize, count,
      [&](int64_t i) {
        Acc acc[kUnroll] = {full(i), full(i + E::kLanes)};
        put(to + i * E::kAccSize, acc[0]);
        put(to + (i + E::kLanes) * E::kAccSize, acc[1]);
      },
      [&](int64_t i, int64_t n) {
        Acc acc;
        if constexpr (Carry) acc = inputs.some(i, n, get_some<Acc>(from + i * E::kAccSize, n * E::kAccSize));
        else acc = inputs.some(i, n);
        put_some(to + i * E::kAccSize, acc, n * E::kAccSize);
      });
}

template <class E>
void fold_finish(const void* carry, void* out, int64_t count, const Finish& finish) noexcept {
  using Acc = typename E::Acc;
  const Byte* const from = static_cast<const Byte*>(carry);
  Byte* const to = static_cast<Byte*>(out);
  const typename E::Mean f = E::mean_of(finish);
  walk<E, 1>(
      to, E::kSize, count,
      [&](int64_t i) { put(to + i * E::kSize, E::narrow(E::finish(get<Acc>(from + i * E::kAccSize), f))); },
      [&](int64_t i, int64_t n) {
        const Acc acc = get_some<Acc>(from + i * E::kAccSize, n * E::kAccSize);
        put_some(to + i * E::kSize, E::narrow(E::finish(acc, f)), n * E::kSize);
      });
}

template <class E, int... N>
constexpr void fill_folds(Kernels& table, ddp_dtype dtype, std::integer_sequence<int, N...>) noexcept {
  ((table.to_one[dtype][N + 1] = &fold_to_one<E, N + 1>), ...);
  ((table.in_place[dtype][N + 1] = &fold_in_place<E, N + 1>), ...);
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
  table.finish[dtype] = &fold_finish<E>;
}

template <class Isa>
constexpr void fill_reductions(Kernels& table) noexcept {
  constexpr int kWords = Isa::kVectorBytes / 4;
  constexpr auto kInputs = std::make_integer_sequence<int, kMaxFold>{};
  fill_folds<F32<kWords>>(table, DDP_F32, kInputs);
  fill_folds<F64<kWords / 2>>(table, DDP_F64, kInputs);
  fill_folds<F16<Isa, kWords>>(table, DDP_F16, kInputs);
  fill_folds<BF16<kWords>>(table, DDP_BF16, kInputs);
  fill_parts<F32<kWords>>(table, DDP_F32);
  fill_parts<F64<kWords / 2>>(table, DDP_F64);
  fill_parts<F16<Isa, kWords>>(table, DDP_F16);
  fill_parts<BF16<kWords>>(table, DDP_BF16);
  fill_parts<IntElement<int32_t, uint32_t, kWords>>(table, DDP_I32);
  fill_parts<IntElement<int64_t, uint64_t, kWords / 2>>(table, DDP_I64);
  fill_parts<IntElement<uint8_t, uint8_t, kWords * 4>>(table, DDP_U8);
}

}  // namespace
}  // namespace ddp::cpu
