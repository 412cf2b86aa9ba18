// The reduction loops: inputs are read once into registers, combined in order, finished, and written to one output or over
// all inputs. The number of inputs is a template argument, so that their pointers live in registers. Counts are multiples of
// kGroup; reduce.cpp brings the ends of an array into that form. Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/elements.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

template <int N>
constexpr auto kUpTo = std::make_integer_sequence<int, N>{};

/// Calls store(i, load(i)) for every vector. Several at a time, and all loads before all stores: several chains of additions
/// are in flight, and no store stands before a load.
template <int Lanes, class Load, class Store, int... U>
[[gnu::always_inline]] inline void each_vector(int64_t count, Load load, Store store,
                                               std::integer_sequence<int, U...>) noexcept {
  static_assert(kGroup % (Lanes * sizeof...(U)) == 0);
  using V = decltype(load(int64_t{0}));
  for (int64_t i = 0; i < count; i += Lanes * int64_t{sizeof...(U)}) {
    V v[sizeof...(U)] = {load(i + U * Lanes)...};
    (store(i + U * Lanes, v[U]), ...);
  }
}

/// More vectors at a time were slower (README.md, "How the loops were chosen"): the processor overlaps the turns by itself,
/// and many stores to several arrays in a row get in each other's way.
template <int Inputs>
constexpr auto kAtOnce = kUpTo<(Inputs <= 3 ? 2 : 1)>;

template <class E, class Op, int N>
struct Inputs {
  using Acc = typename E::Acc;
  const Byte* at[N];

  [[gnu::always_inline]] Acc value(int k, int64_t i) const noexcept {
    return E::widen(get<typename E::Raw>(at[k] + i * E::kSize));
  }
  /// Inputs First, First + 1, ... behind `acc`, in order.
  template <int First, int... K>
  [[gnu::always_inline]] Acc behind([[maybe_unused]] int64_t i, Acc acc, std::integer_sequence<int, K...>) const noexcept {
    ((acc = Op::template apply<E>(acc, value(First + K, i))), ...);
    return acc;
  }
  [[gnu::always_inline]] Acc sum(int64_t i) const noexcept { return behind<1>(i, value(0, i), kUpTo<N - 1>); }
  [[gnu::always_inline]] Acc sum(int64_t i, Acc carry) const noexcept { return behind<0>(i, carry, kUpTo<N>); }
};

template <class E, class Op, int N, int... K>
[[gnu::always_inline]] inline Inputs<E, Op, N> inputs_of(const void* const* in, std::integer_sequence<int, K...>) noexcept {
  return {{static_cast<const Byte*>(in[K])...}};
}

template <class E, int N, bool Divide>
void fold_to_one(const void* const* in, void* out, int64_t count, const Finish& finish) noexcept {
  const auto inputs = inputs_of<E, Add, N>(in, kUpTo<N>);
  const auto mean = E::mean_of(finish);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<E::kLanes>(
      count, [=](int64_t i) { return E::narrow_finished(E::template finish<Divide>(inputs.sum(i), mean)); },
      [=](int64_t i, typename E::Raw raw) { put(to + i * E::kSize, raw); }, kAtOnce<N>);
}

/// Written through the inputs' own pointers: twice as many pointers would not fit in registers.
template <class E, int N, bool Divide, int... K>
[[gnu::always_inline]] inline void fold_over(const void* const* in, int64_t count, const Finish& finish,
                                             std::integer_sequence<int, K...> all) noexcept {
  const auto inputs = inputs_of<E, Add, N>(in, all);
  const auto mean = E::mean_of(finish);
  each_vector<E::kLanes>(
      count, [=](int64_t i) { return E::narrow_finished(E::template finish<Divide>(inputs.sum(i), mean)); },
      [=](int64_t i, typename E::Raw raw) { (put(const_cast<Byte*>(inputs.at[K]) + i * E::kSize, raw), ...); }, kAtOnce<N>);
}

template <class E, int N, bool Divide>
void fold_in_place(const void* const* in, void*, int64_t count, const Finish& finish) noexcept {
  fold_over<E, N, Divide>(in, count, finish, kUpTo<N>);
}

/// Inputs that are multiplied by their weights when they are loaded.
template <class E, int N>
struct WeightedInputs {
  using Acc = typename E::Acc;
  const Byte* at[N];
  typename E::Scalar weight[N];

  [[gnu::always_inline]] Acc term(int k, int64_t i) const noexcept {
    return E::times(E::widen(get<typename E::Raw>(at[k] + i * E::kSize)), weight[k]);
  }
  template <int... K>
  [[gnu::always_inline]] Acc sum(int64_t i, std::integer_sequence<int, K...>) const noexcept {
    Acc acc = term(0, i);
    ((acc = E::add(acc, term(K + 1, i))), ...);
    return acc;
  }
};

template <class E, int N, int... K>
[[gnu::always_inline]] inline WeightedInputs<E, N> weighted_inputs_of(const void* const* in, const double* weights,
                                                                      std::integer_sequence<int, K...>) noexcept {
  return {{static_cast<const Byte*>(in[K])...}, {static_cast<typename E::Scalar>(weights[K])...}};
}

template <class E, int N>
void fold_weighted_to_one(const void* const* in, void* out, int64_t count, const Finish& finish) noexcept {
  const auto inputs = weighted_inputs_of<E, N>(in, finish.weights, kUpTo<N>);
  const auto mean = E::mean_of(finish);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<E::kLanes>(
      count, [=](int64_t i) { return E::narrow_finished(E::template finish<true>(inputs.sum(i, kUpTo<N - 1>), mean)); },
      [=](int64_t i, typename E::Raw raw) { put(to + i * E::kSize, raw); }, kAtOnce<N>);
}

template <class E, int N, int... K>
[[gnu::always_inline]] inline void fold_weighted_over(const void* const* in, int64_t count, const Finish& finish,
                                                      std::integer_sequence<int, K...> all) noexcept {
  const auto inputs = weighted_inputs_of<E, N>(in, finish.weights, all);
  const auto mean = E::mean_of(finish);
  each_vector<E::kLanes>(
      count, [=](int64_t i) { return E::narrow_finished(E::template finish<true>(inputs.sum(i, kUpTo<N - 1>), mean)); },
      [=](int64_t i, typename E::Raw raw) { (put(const_cast<Byte*>(inputs.at[K]) + i * E::kSize, raw), ...); }, kAtOnce<N>);
}

template <class E, int N>
void fold_weighted_in_place(const void* const* in, void*, int64_t count, const Finish& finish) noexcept {
  fold_weighted_over<E, N>(in, count, finish, kUpTo<N>);
}

template <class E, class Op, int N, bool Carry>
void fold_part(const void* carry_in, const void* const* in, void* carry_out, int64_t count) noexcept {
  using Acc = typename E::Acc;
  const auto inputs = inputs_of<E, Op, N>(in, kUpTo<N>);
  const Byte* const from = static_cast<const Byte*>(carry_in);
  Byte* const to = static_cast<Byte*>(carry_out);
  each_vector<E::kLanes>(
      count,
      [=](int64_t i) {
        if constexpr (Carry)
          return inputs.sum(i, get<Acc>(from + i * E::kAccSize));
        else
          return inputs.sum(i);
      },
      [=](int64_t i, Acc acc) { put(to + i * E::kAccSize, acc); }, kUpTo<2>);
}

template <class E, int N, bool Carry>
void fold_weighted_part(const void* carry_in, const void* const* in, const double* weights, void* carry_out, int64_t count) noexcept {
  using Acc = typename E::Acc;
  using Scalar = typename E::Scalar;
  const auto inputs = inputs_of<E, Add, N>(in, kUpTo<N>);
  const Byte* const from = static_cast<const Byte*>(carry_in);
  Byte* const to = static_cast<Byte*>(carry_out);
  Scalar weight[N];
  for (int k = 0; k < N; ++k) weight[k] = static_cast<Scalar>(weights[k]);
  each_vector<E::kLanes>(
      count,
      [=](int64_t i) {
        Acc sum = E::times(inputs.value(0, i), weight[0]);
        if constexpr (Carry) sum = E::add(get<Acc>(from + i * E::kAccSize), sum);
        for (int k = 1; k < N; ++k) sum = E::add(sum, E::times(inputs.value(k, i), weight[k]));
        return sum;
      },
      [=](int64_t i, Acc acc) { put(to + i * E::kAccSize, acc); }, kUpTo<2>);
}

template <class E, bool Divide>
void fold_finish(const void* carry, void* out, int64_t count, const Finish& finish) noexcept {
  const auto mean = E::mean_of(finish);
  const Byte* const from = static_cast<const Byte*>(carry);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<E::kLanes>(
      count,
      [=](int64_t i) {
        return E::narrow_finished(E::template finish<Divide>(get<typename E::Acc>(from + i * E::kAccSize), mean));
      },
      [=](int64_t i, typename E::Raw raw) { put(to + i * E::kSize, raw); }, kUpTo<1>);
}

}  // namespace
}  // namespace ddp::cpu
