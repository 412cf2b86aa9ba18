// SPDX-License-Identifier: Apache-2.0
// The update rules over vectors. The class Isa is one of device/cpu/isa_*.hpp with a square root.
// Anonymous namespace: see device/cpu/vectors.hpp.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/cpu/elements.hpp"
#include "device/cpu/update_kernel_table.hpp"

namespace ddp::cpu {
namespace {

using cpu::Byte;

/// The arrays of a rule, as bytes: those that it reads, and those that it changes. New moments are written at this byte
/// distance from the old ones; 0: in their place.
struct Place {
  const Byte* read;
  Byte* value;
  Byte* first;
  Byte* second;
  int64_t first_moves = 0;
  int64_t second_moves = 0;
};

template <bool moves>
[[gnu::always_inline]] inline Place place_of(void* value, const void* grad, const Moved& first,
                                             const Moved& second) noexcept {
  Place place{static_cast<const Byte*>(grad), static_cast<Byte*>(value), static_cast<Byte*>(first.from),
              static_cast<Byte*>(second.from)};
  if constexpr (!moves) return place;
  place.first_moves = static_cast<Byte*>(first.to) - place.first;
  place.second_moves = static_cast<Byte*>(second.to) - place.second;
  return place;
}

/// Which of the changed arrays a rule has; the others are NULL and stay alone.
enum Uses : unsigned { kValue = 1, kFirst = 2, kSecond = 4 };

template <class E, unsigned uses>
[[gnu::always_inline]] inline void advance(Place& at, int64_t count = E::kLanes) noexcept {
  at.read += E::kSize * count;
  if constexpr ((uses & kValue) != 0) at.value += E::kSize * count;
  if constexpr ((uses & kFirst) != 0) at.first += E::kAccSize * count;
  if constexpr ((uses & kSecond) != 0) at.second += E::kAccSize * count;
}

/// The last, partial vector is worked on in a copy that is filled up with zeros.
template <class E, unsigned uses, class Body>
[[gnu::always_inline]] inline void finish_vector(Place at, int64_t count, Body body) noexcept {
  alignas(64) Byte copy[4][E::kAccSize * E::kLanes] = {};
  const int64_t raw = count * E::kSize;
  const int64_t acc = count * E::kAccSize;
  cpu::copy_some(copy[0], at.read, raw);
  if constexpr ((uses & kValue) != 0) cpu::copy_some(copy[1], at.value, raw);
  if constexpr ((uses & kFirst) != 0) cpu::copy_some(copy[2], at.first, acc);
  if constexpr ((uses & kSecond) != 0) cpu::copy_some(copy[3], at.second, acc);
  body(Place{copy[0], copy[1], copy[2], copy[3]});
  if constexpr ((uses & kValue) != 0) cpu::copy_some(at.value, copy[1], raw);
  if constexpr ((uses & kFirst) != 0) cpu::copy_some(at.first + at.first_moves, copy[2], acc);
  if constexpr ((uses & kSecond) != 0) cpu::copy_some(at.second + at.second_moves, copy[3], acc);
}

/// Bytes from `place` to the next beginning of a line.
[[gnu::always_inline]] inline int64_t to_next_line(const Byte* place) noexcept {
  constexpr uintptr_t kLine = 64;
  return static_cast<int64_t>((kLine - reinterpret_cast<uintptr_t>(place) % kLine) % kLine);
}

/// Past the caches where the machine can; `to` is aligned.
template <class V>
[[gnu::always_inline]] inline void put_past(Byte* to, V value) noexcept {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), as<__m512i>(value));
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), as<__m256i>(value));
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 16) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), as<__m128i>(value));
#endif
  cpu::put(to, value);
}

template <class E, unsigned uses, class Body>
[[gnu::always_inline]] inline void each_vector(Place at, int64_t count, Body body) noexcept {
  for (; count >= E::kLanes; count -= E::kLanes) {
    body(at);
    advance<E, uses>(at);
  }
  if (count > 0) finish_vector<E, uses>(at, count, body);
}

/// Of a rule with moments: `body` gets how to put them. With `moves` they go past the caches, from the first line of both
/// on.
template <class E, unsigned uses, bool moves, class Body>
[[gnu::always_inline]] inline void each_vector_to(Place at, int64_t count, Body body) noexcept {
  const auto plain = [=](Place here) __attribute__((always_inline)) {
    body(
        here, [](Byte * to, typename E::Acc value) __attribute__((always_inline)) { cpu::put(to, value); });
  };
  if constexpr (moves) {
    const int64_t ahead = to_next_line(at.first + at.first_moves) / E::kAccSize;
    const int64_t head = ahead < count ? ahead : count;
    each_vector<E, uses>(at, head, plain);
    advance<E, uses>(at, head);
    count -= head;
    if ((uses & kSecond) == 0 || to_next_line(at.second + at.second_moves) == 0)
      return each_vector<E, uses>(
          at, count, [=](Place here) __attribute__((always_inline)) {
            body(
                here, [](Byte * to, typename E::Acc value) __attribute__((always_inline)) { put_past(to, value); });
          });
  }
  each_vector<E, uses>(at, count, plain);
}

template <class E>
[[gnu::always_inline]] inline typename E::Acc widened(const Byte* from) noexcept {
  return E::widen(cpu::get<typename E::Raw>(from));
}
template <class E>
[[gnu::always_inline]] inline typename E::Acc moment(const Byte* from) noexcept {
  return cpu::get<typename E::Acc>(from);
}

/// The scalar, rounded to the compute type, in every lane.
template <class E>
[[gnu::always_inline]] inline typename E::Acc lanes_of(double scalar) noexcept {
  return typename E::Acc{} + static_cast<typename E::Scalar>(scalar);
}

/// The gradient as the rule sees it. A NaN is below and above nothing, so it stays.
template <class E>
struct Shaped {
  using V = typename E::Acc;
  explicit Shaped(const GradShape& shape) noexcept
      : scale(lanes_of<E>(shape.scale)), limit(lanes_of<E>(shape.limit)), on(shape.changes()) {}
  [[gnu::always_inline]] V of(V grad) const noexcept {
    if (!on) return grad;
    grad = grad * scale;
    grad = grad > limit ? limit : grad;
    return grad < -limit ? -limit : grad;
  }
  V scale, limit;
  bool on;
};

template <class E, Momentum mode, bool nesterov, bool moves>
void sgd_loop(const SgdStep& step, Place place, int64_t count) noexcept {
  using V = typename E::Acc;
  const V rate = lanes_of<E>(step.rate);
  const V decay = lanes_of<E>(step.weight_decay);
  const V momentum = lanes_of<E>(step.momentum);
  const V share = lanes_of<E>(step.gradient_share);
  const bool decays = step.weight_decay != 0;
  const Shaped<E> shaped(step.shape);
  constexpr unsigned kUses = mode == Momentum::kNone ? kValue : kValue | kFirst;
  each_vector_to<E, kUses, moves>(
      place, count, [=](Place at, auto put_moment) __attribute__((always_inline)) {
        const V value = widened<E>(at.value);
        V direction = shaped.of(widened<E>(at.read));
        if (decays) direction = direction + decay * value;
        if constexpr (mode != Momentum::kNone) {
          V buffer = direction;
          if constexpr (mode == Momentum::kRunning) buffer = momentum * moment<E>(at.first) + share * direction;
          put_moment(at.first + at.first_moves, buffer);
          direction = nesterov ? direction + momentum * buffer : buffer;
        }
        cpu::put(at.value, E::narrow(value - rate * direction));
      });
}

template <class E, bool moves>
void sgd_loops(const SgdStep& step, void* value, const void* grad, const Moved& buffer, int64_t count) noexcept {
  const Place place = place_of<moves>(value, grad, buffer, {});
  switch (step.mode) {
    case Momentum::kNone: return sgd_loop<E, Momentum::kNone, false, false>(step, place, count);
    case Momentum::kFirst:
      return step.nesterov ? sgd_loop<E, Momentum::kFirst, true, moves>(step, place, count)
                           : sgd_loop<E, Momentum::kFirst, false, moves>(step, place, count);
    case Momentum::kRunning:
      return step.nesterov ? sgd_loop<E, Momentum::kRunning, true, moves>(step, place, count)
                           : sgd_loop<E, Momentum::kRunning, false, moves>(step, place, count);
  }
}

template <class E, class Isa, bool moves>
void adam_loop(const AdamStep& step, Place place, int64_t count) noexcept {
  using V = typename E::Acc;
  const V keep = lanes_of<E>(step.keep);
  const V decay = lanes_of<E>(step.weight_decay);
  const V beta1 = lanes_of<E>(step.beta1);
  const V share1 = lanes_of<E>(step.share1);
  const V beta2 = lanes_of<E>(step.beta2);
  const V share2 = lanes_of<E>(step.share2);
  const V size = lanes_of<E>(step.size);
  const V root_scale = lanes_of<E>(step.root_scale);
  const V epsilon = lanes_of<E>(step.epsilon);
  const bool decays = step.weight_decay != 0;
  const Shaped<E> shaped(step.shape);
  each_vector_to<E, kValue | kFirst | kSecond, moves>(
      place, count, [=](Place at, auto put_moment) __attribute__((always_inline)) {
        const V value = widened<E>(at.value) * keep;
        V grad = shaped.of(widened<E>(at.read));
        if (decays) grad = grad + decay * value;
        const V mean = beta1 * moment<E>(at.first) + share1 * grad;
        const V square = beta2 * moment<E>(at.second) + share2 * grad * grad;
        put_moment(at.first + at.first_moves, mean);
        put_moment(at.second + at.second_moves, square);
        cpu::put(at.value, E::narrow(value - size * mean / (Isa::root(square) * root_scale + epsilon)));
      });
}

template <class E, class Isa, bool moves>
void adam_loops(const AdamStep& step, void* value, const void* grad, const Moved& exp_avg, const Moved& exp_avg_sq,
                int64_t count) noexcept {
  adam_loop<E, Isa, moves>(step, place_of<moves>(value, grad, exp_avg, exp_avg_sq), count);
}

template <class E>
void ema_loop(double decay, const void* value, void* average, int64_t count) noexcept {
  using V = typename E::Acc;
  const V keep = lanes_of<E>(decay);
  const V share = lanes_of<E>(1.0 - decay);
  const Place place{static_cast<const Byte*>(value), nullptr, static_cast<Byte*>(average), nullptr};
  each_vector<E, kFirst>(
      place, count, [=](Place at) __attribute__((always_inline)) {
        cpu::put(at.first, keep * moment<E>(at.first) + share * widened<E>(at.read));
      });
}

template <class E, class Isa>
constexpr void fill_updates(UpdateKernels& table, ddp_dtype dtype) noexcept {
  table.sgd[dtype] = {sgd_loops<E, false>, sgd_loops<E, true>};
  table.adam[dtype] = {adam_loops<E, Isa, false>, adam_loops<E, Isa, true>};
  table.ema[dtype] = ema_loop<E>;
}

template <class Isa>
constexpr UpdateKernels make_updates() noexcept {
  constexpr int kLanes = Isa::kWords;
  UpdateKernels table{};
  table.name = Isa::kName;
  fill_updates<cpu::F32<kLanes>, Isa>(table, DDP_F32);
  fill_updates<cpu::F64<kLanes / 2>, Isa>(table, DDP_F64);
  fill_updates<cpu::F16<Isa, kLanes>, Isa>(table, DDP_F16);
  fill_updates<cpu::BF16<Isa, kLanes>, Isa>(table, DDP_BF16);
  return table;
}

}  // namespace
}  // namespace ddp::cpu
