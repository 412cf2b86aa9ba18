// SPDX-License-Identifier: Apache-2.0
// What the optimizers' kernels share: the arrays of a parameter as they come and go, and launching with tables of pieces and
// rules.
//
// One vector is 16 bytes of state: four elements, or two F64. An element is read, computed in its wide type and rounded to
// its own type once.
// With a master the rule works on that, and the parameter is the master rounded.
// Tested by unit/cuda/rules_test.cpp (the formulas).
#pragma once

#include "modules/cuda/kernels/joins.hpp"
#include "modules/cuda/kernels/launch.cuh"
#include "modules/cuda/kernels/rules.hpp"

namespace ddp::cuda {

struct UpdatePiece {
  void* value;
  const void* grad;  // written where it is divided
  void* state[2];
  void* master;
  uint32_t count;
  uint32_t first_tile;
  uint32_t rule;  // in the launch's own list
  uint32_t reserved;
};

inline constexpr uint32_t kUpdateTile = 2048;

/// How a gradient is shaped. divisor 0: it is no sum.
template <class T>
struct Shaping {
  T scale, limit, divisor;
};

/// That, and whether anything happens at all.
template <class T>
struct Step {
  Shaping<T> shaping;
  const ddp_gpu_gate* gate;
  ddp_gpu_stop stop;
  __device__ __forceinline__ Shaping<T> now() const {
    return {gate != nullptr ? static_cast<T>(gate->scale) : shaping.scale, shaping.limit, shaping.divisor};
  }
};
template <class T>
[[nodiscard]] Step<T> step_of(const ddp_gpu_shape& shape, ddp_gpu_stop stop) noexcept {
  return {{static_cast<T>(shape.scale), static_cast<T>(shape.limit), static_cast<T>(shape.divisor)}, shape.gate, stop};
}

template <class Scalars, class T, int rule_count, int pieces>
struct UpdateParameters {
  static constexpr int kRules = rule_count;
  Step<T> step;
  Scalars rules[rule_count];
  Table<UpdatePiece, pieces> table;
};

template <class Scalars, class T, int rules, size_t bytes>
using UpdatesIn =
    UpdateParameters<Scalars, T, rules, capacity<UpdatePiece>(bytes, sizeof(Step<T>) + rules * sizeof(Scalars) + 16)>;
/// For a bucket of a few dozen parameters, and for more of them.
template <class Scalars, class T>
using FewUpdates = UpdatesIn<Scalars, T, 8, kSmall>;
template <class Scalars, class T>
using ManyUpdates = UpdatesIn<Scalars, T, 48, kLarge>;

/// Rules that plan_step wrote: one for each parameter, in device memory.
template <class T, int pieces>
struct PlannedParameters {
  Step<T> step;
  const ddp_gpu_planned_rule* rules;
  Table<UpdatePiece, pieces> table;
};
template <class T, size_t bytes>
using PlannedIn = PlannedParameters<T, capacity<UpdatePiece>(bytes, sizeof(Step<T>) + sizeof(void*) + 16)>;

/// A rule's arrays from the first element of a tile on. states: how many of them the rule keeps now.
template <class E, int states, bool has_master, class Rule>
struct Update {
  using T = Wide<E>;
  E* value;
  E* grad;
  T* state[2];
  T* master;
  Shaping<T> shaping;
  Rule rule;

  template <uint32_t width>
  struct Loaded {
    Pack<E, width> value, grad;
    Pack<T, width> state[2];
    Pack<T, width> master;
  };
  template <uint32_t width>
  __device__ __forceinline__ Loaded<width> load(uint32_t at) const {
    Loaded<width> loaded;
    loaded.value = load_pack<E, width>(value, at);
    loaded.grad = load_pack<E, width>(grad, at);
#pragma unroll
    for (int k = 0; k < states; ++k) loaded.state[k] = load_pack<T, width>(state[k], at);
    if constexpr (has_master) loaded.master = load_pack<T, width>(master, at);
    return loaded;
  }
  template <uint32_t width>
  __device__ __forceinline__ void store(uint32_t at, Loaded<width> loaded) const {
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) {
      T x = widened(loaded.value.element[k]);
      if constexpr (has_master) x = refreshed(loaded.master.element[k], loaded.value.element[k]);
      if (shaping.divisor != 0)
        loaded.grad.element[k] = Narrow<E>::of(quotient(widened(loaded.grad.element[k]), T{1}, shaping.divisor, true));
      rule(shaped(widened(loaded.grad.element[k]), shaping.scale, shaping.limit), x, loaded.state[0].element[k],
           loaded.state[1].element[k]);
      if constexpr (has_master) loaded.master.element[k] = x;
      loaded.value.element[k] = Narrow<E>::of(x);
    }
    store_pack<E, width>(value, at, loaded.value);
    if (shaping.divisor != 0) store_pack<E, width>(grad, at, loaded.grad);
#pragma unroll
    for (int k = 0; k < states; ++k) store_pack<T, width>(state[k], at, loaded.state[k]);
    if constexpr (has_master) store_pack<T, width>(master, at, loaded.master);
  }
};

/// One tile of a piece.
template <class E, int states, bool has_master, class Rule>
__device__ __forceinline__ void update_tile(const UpdatePiece& piece, uint32_t first, uint32_t count,
                                            const Shaping<Wide<E>>& shaping, const Rule& rule) {
  using T = Wide<E>;
  constexpr uint32_t kWidth = 16 / sizeof(T);
  Update<E, states, has_master, Rule> update{static_cast<E*>(piece.value) + first,
                                             static_cast<E*>(const_cast<void*>(piece.grad)) + first,
                                             {nullptr, nullptr},
                                             nullptr,
                                             shaping,
                                             rule};
  for (int k = 0; k < states; ++k) update.state[k] = static_cast<T*>(piece.state[k]) + first;
  if constexpr (has_master) update.master = static_cast<T*>(piece.master) + first;
  const Lane lanes[] = {{update.value, sizeof(E)},
                        {update.grad, sizeof(E)},
                        {update.state[0], sizeof(T)},
                        {update.state[1], sizeof(T)},
                        {update.master, sizeof(T)}};
  each_element<kWidth, 1>(split(count, kWidth, lanes), count, update);
}

template <class T>
struct AdamRule {
  AdamScalars<T> scalars;
  __device__ __forceinline__ void operator()(T grad, T& value, T& mean, T& square) const {
    adam(scalars, grad, value, mean, square);
  }
};

/// One tile, by the rule of its piece.
template <class E, class T>
__device__ __forceinline__ void update_piece(const UpdatePiece& piece, uint32_t first, uint32_t count,
                                             const Shaping<T>& shaping, const AdamRule<T>& rule) {
  if constexpr (sizeof(E) == 2) {
    if (piece.master != nullptr) return update_tile<E, 2, true>(piece, first, count, shaping, rule);
  }
  update_tile<E, 2, false>(piece, first, count, shaping, rule);
}

template <class T>
struct SgdRule {
  SgdScalars<T> scalars;
  __device__ __forceinline__ void operator()(T grad, T& value, T& buffer, T&) const { sgd(scalars, grad, value, buffer); }
};

/// With or without a momentum buffer, according to the rule of the piece.
template <class E, bool has_master, class T>
__device__ __forceinline__ void sgd_tile(const UpdatePiece& piece, uint32_t first, uint32_t count, const Shaping<T>& shaping,
                                         const SgdRule<T>& rule) {
  if (rule.scalars.mode != 0)
    update_tile<E, 1, has_master>(piece, first, count, shaping, rule);
  else
    update_tile<E, 0, has_master>(piece, first, count, shaping, rule);
}

template <class E, class T>
__device__ __forceinline__ void update_piece(const UpdatePiece& piece, uint32_t first, uint32_t count,
                                             const Shaping<T>& shaping, const SgdRule<T>& rule) {
  if constexpr (sizeof(E) == 2) {
    if (piece.master != nullptr) return sgd_tile<E, true>(piece, first, count, shaping, rule);
  }
  sgd_tile<E, false>(piece, first, count, shaping, rule);
}

/// The rules of one launch: those that its pieces name, in the order in which they came.
template <class Scalars, int most>
class RuleSlots {
 public:
  explicit RuleSlots(Scalars* slots) noexcept : slots_(slots) {}
  [[nodiscard]] int find(int64_t rule) const noexcept {
    for (int k = used_ - 1; k >= 0; --k)
      if (names_[k] == rule) return k;
    return -1;
  }
  [[nodiscard]] bool full() const noexcept { return used_ == most; }
  void clear() noexcept { used_ = 0; }
  int add(int64_t rule, const Scalars& scalars) noexcept {
    names_[used_] = rule;
    slots_[used_] = scalars;
    return used_++;
  }

 private:
  Scalars* slots_;
  int64_t names_[most] = {};
  int used_ = 0;
};

/// Adds an update in pieces of a length that fits, under the rule with this number.
template <class E, class Batches>
void add_pieces(Batches& batches, const ddp_gpu_update& u, uint32_t rule) noexcept {
  using T = Wide<E>;
  each_part(u.count, [&](int64_t first, uint32_t length) {
    const int64_t raw = first * static_cast<int64_t>(sizeof(E));
    const int64_t wide = first * static_cast<int64_t>(sizeof(T));
    batches.add(UpdatePiece{moved(u.value, raw),
                            moved(u.grad, raw),
                            {moved(u.state[0], wide), moved(u.state[1], wide)},
                            moved(u.master, wide),
                            length,
                            0,
                            rule,
                            0});
  });
}

/// Launches what `updates` and the rules that they name come to; `slots` are of the batches' parameters.
template <class Scalars, class E, class Batches, class Slots, class Rule>
int32_t add_updates(Batches& batches, Slots& slots, const ddp_gpu_update* updates, int64_t count, const Rule* rules,
                    int64_t rule_count) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    const ddp_gpu_update& u = updates[i];
    if (u.rule < 0 || u.rule >= rule_count) return kBadArgument;
    int slot = slots.find(u.rule);
    if (slot < 0) {
      if (slots.full()) {
        batches.flush();
        slots.clear();
      }
      slot = slots.add(u.rule, Scalars(rules[u.rule]));
    }
    add_pieces<E>(batches, u, static_cast<uint32_t>(slot));
  }
  return batches.finish();
}

template <class Scalars, class E, class Parameters, class Rule>
int32_t launch_updates_with(void (*kernel)(Parameters), const ddp_gpu_update* updates, int64_t count, const Rule* rules,
                            int64_t rule_count, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) noexcept {
  static_assert(sizeof(Parameters) <= kLarge);
  using T = Wide<E>;
  Parameters p;
  p.step = step_of<T>(shape, stop);
  RuleSlots<Scalars, Parameters::kRules> slots(p.rules);
  Batches batches(kernel, p, kUpdateTile, stream);
  return add_updates<Scalars, E>(batches, slots, updates, count, rules, rule_count);
}

/// Launches a kernel for all updates. `few` and `many` are that kernel with two sizes of table.
template <class Scalars, class E, class Rule>
int32_t launch_updates(void (*few)(FewUpdates<Scalars, Wide<E>>), void (*many)(ManyUpdates<Scalars, Wide<E>>),
                       const ddp_gpu_update* updates, int64_t count, const Rule* rules, int64_t rule_count,
                       const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) noexcept {
  if (count <= decltype(FewUpdates<Scalars, Wide<E>>::table)::kCapacity &&
      rule_count <= FewUpdates<Scalars, Wide<E>>::kRules)
    return launch_updates_with<Scalars, E>(few, updates, count, rules, rule_count, shape, stop, stream);
  return launch_updates_with<Scalars, E>(many, updates, count, rules, rule_count, shape, stop, stream);
}

/// The same by rules in device memory.
template <class E, class Parameters>
int32_t launch_planned_with(void (*kernel)(Parameters), const ddp_gpu_update* updates, int64_t count,
                            const ddp_gpu_planned_rule* rules, int64_t rule_count, const ddp_gpu_shape& shape,
                            ddp_gpu_stop stop, void* stream) noexcept {
  static_assert(sizeof(Parameters) <= kLarge);
  using T = Wide<E>;
  Parameters p;
  p.step = step_of<T>(shape, stop);
  p.rules = rules;
  Batches batches(kernel, p, kUpdateTile, stream);
  for (int64_t i = 0; i < count; ++i) {
    if (updates[i].rule < 0 || updates[i].rule >= rule_count) return kBadArgument;
    add_pieces<E>(batches, updates[i], static_cast<uint32_t>(updates[i].rule));
  }
  return batches.finish();
}

template <class E>
int32_t launch_planned(void (*few)(PlannedIn<Wide<E>, kSmall>), void (*many)(PlannedIn<Wide<E>, kLarge>),
                       const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                       const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) noexcept {
  if (count <= decltype(PlannedIn<Wide<E>, kSmall>::table)::kCapacity)
    return launch_planned_with<E>(few, updates, count, rules, rule_count, shape, stop, stream);
  return launch_planned_with<E>(many, updates, count, rules, rule_count, shape, stop, stream);
}

}  // namespace ddp::cuda
