// SPDX-License-Identifier: Apache-2.0
// The reduction loops: inputs are read once into registers, joined in the tree of core/sum_tree.hpp, finished, and written
// to one output or over all inputs; or left unfinished, alone or added to a sum on their left. The number of
// inputs is a template argument, so that their pointers live in registers. Counts are multiples of kGroup; reduce.cpp and
// tree.cpp bring the ends of an array into that form.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/elements.hpp"
#include "device/cpu/kernels.hpp"

namespace ddp::cpu {
namespace {

template <int N>
constexpr auto kUpTo = std::make_integer_sequence<int, N>{};

/// Calls store(i, load(i)) for every vector. Several at a time, and all loads before all stores: several chains of additions
/// are in flight, and no store comes before a load.
template <int Lanes, class Load, class Store, int... U>
[[gnu::always_inline]] inline void each_vector(int64_t count, Load load, Store store,
                                               std::integer_sequence<int, U...>) noexcept {
  static_assert(kGroup % (Lanes * sizeof...(U)) == 0);
  using V = decltype(load(int64_t{0}));
  for (int64_t i = 0; i < count; i += Lanes * int64_t{sizeof...(U)}) {
    // NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): a few lanes
    V v[sizeof...(U)] = {load(i + U * Lanes)...};
    (store(i + U * Lanes, v[U]), ...);
    // NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
  }
}

/// More vectors at a time were slower (README.md, "How the loops were chosen"): the processor overlaps the turns by itself,
/// and many stores to several arrays in a row get in each other's way.
template <int Inputs>
constexpr auto kAtOnce = kUpTo<(Inputs <= 3 ? 2 : 1)>;

/// sum(Lo, Hi) of the leaves' element i.
template <int Lo, int Hi, class Leaves>
[[gnu::always_inline]] inline typename Leaves::Node tree(const Leaves& leaves, int64_t i) noexcept {
  if constexpr (Hi - Lo == 1) {
    return leaves.leaf(Lo, i);
  } else {
    constexpr int kMid = Lo + (Hi - Lo > 4 ? 4 : Hi - Lo > 2 ? 2 : 1);
    const typename Leaves::Node left = tree<Lo, kMid>(leaves, i);
    return Leaves::join(left, tree<kMid, Hi>(leaves, i));
  }
}

/// Inputs as they are.
template <class E, class Op, int N>
struct Inputs {
  using Node = typename E::Acc;
  static constexpr int kLanes = E::kLanes;
  static constexpr int kNodeSize = E::kAccSize;
  const Byte* at[N];

  template <int... K>
  [[gnu::always_inline]] static Inputs of(const void* const* in, const Finish&, std::integer_sequence<int, K...>) noexcept {
    return {{static_cast<const Byte*>(in[K])...}};
  }
  [[gnu::always_inline]] Node leaf(int k, int64_t i) const noexcept {
    return E::widen(get<typename E::Raw>(at[k] + i * E::kSize));
  }
  [[gnu::always_inline]] static Node join(Node a, Node b) noexcept { return Op::template apply<E>(a, b); }
  [[gnu::always_inline]] static Node read(const Byte* node) noexcept { return get<Node>(node); }
  [[gnu::always_inline]] static Node stored(Node node) noexcept { return node; }
};

/// Inputs that are multiplied by their weights when they are loaded.
template <class E, int N>
struct WeightedInputs {
  using Node = typename E::Acc;
  static constexpr int kLanes = E::kLanes;
  static constexpr int kNodeSize = E::kAccSize;
  const Byte* at[N];
  typename E::Scalar weight[N];

  template <int... K>
  [[gnu::always_inline]] static WeightedInputs of(const void* const* in, const Finish& finish,
                                                  std::integer_sequence<int, K...>) noexcept {
    return {{static_cast<const Byte*>(in[K])...}, {static_cast<typename E::Scalar>(finish.weights[K])...}};
  }
  [[gnu::always_inline]] Node leaf(int k, int64_t i) const noexcept {
    return E::times(E::widen(get<typename E::Raw>(at[k] + i * E::kSize)), weight[k]);
  }
  [[gnu::always_inline]] static Node join(Node a, Node b) noexcept { return E::add(a, b); }
  [[gnu::always_inline]] static Node read(const Byte* node) noexcept { return get<Node>(node); }
  [[gnu::always_inline]] static Node stored(Node node) noexcept { return node; }
};

template <class E, class Leaves, int N, bool Divide>
void fold_to_one(const void* const* in, void* out, int64_t count, const Finish& finish) noexcept {
  const auto leaves = Leaves::of(in, finish, kUpTo<N>);
  const auto mean = E::mean_of(finish);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<E::kLanes>(
      count, [=](int64_t i) { return E::narrow_finished(E::template finish<Divide>(tree<0, N>(leaves, i), mean)); },
      [=](int64_t i, typename E::Raw raw) { put(to + i * E::kSize, raw); }, kAtOnce<N>);
}

/// Written through the inputs' own pointers: twice as many pointers would not fit in registers.
template <class E, class Leaves, int N, bool Divide, int... K>
[[gnu::always_inline]] inline void fold_over(const void* const* in, int64_t count, const Finish& finish,
                                             std::integer_sequence<int, K...> all) noexcept {
  const auto leaves = Leaves::of(in, finish, all);
  const auto mean = E::mean_of(finish);
  each_vector<E::kLanes>(
      count, [=](int64_t i) { return E::narrow_finished(E::template finish<Divide>(tree<0, N>(leaves, i), mean)); },
      [=](int64_t i, typename E::Raw raw) { (put(const_cast<Byte*>(leaves.at[K]) + i * E::kSize, raw), ...); }, kAtOnce<N>);
}

template <class E, class Leaves, int N, bool Divide>
void fold_in_place(const void* const* in, void*, int64_t count, const Finish& finish) noexcept {
  fold_over<E, Leaves, N, Divide>(in, count, finish, kUpTo<N>);
}

/// An unfinished node of N leaves; Behind: added to `left`, the node before it.
template <class Leaves, int N, bool Behind>
void fold_node(const void* left, const void* const* in, void* out, int64_t count, const Finish& finish) noexcept {
  using Node = typename Leaves::Node;
  const auto leaves = Leaves::of(in, finish, kUpTo<N>);
  const Byte* const before = static_cast<const Byte*>(left);
  Byte* const to = static_cast<Byte*>(out);
  each_vector<Leaves::kLanes>(
      count,
      [=](int64_t i) {
        const Node node = tree<0, N>(leaves, i);
        if constexpr (Behind)
          return Leaves::join(Leaves::read(before + i * Leaves::kNodeSize), node);
        else
          return node;
      },
      [=](int64_t i, Node node) { put(to + i * Leaves::kNodeSize, Leaves::stored(node)); }, kUpTo<(N <= 4 ? 2 : 1)>);
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
