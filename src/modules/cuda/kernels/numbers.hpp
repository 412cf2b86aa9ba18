// SPDX-License-Identifier: Apache-2.0
// An element on the device: its type in memory, the type it is computed in, and the conversions between them. The same
// functions compile for the host, where the tests compare them with the CPU's loops.
//
// Conversions round to nearest even, once, and keep a NaN's sign and payload, as core/float16.hpp does, whose code it is but
// for binary16 on the device, where the hardware has an instruction. Any thread.
// Tested by unit/cuda/numbers_test.cpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/float16.hpp"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define DDP_HD __host__ __device__ __forceinline__
#else
#define DDP_HD inline
#endif

#if defined(__CUDA_ARCH__)
#define DDP_UNROLL _Pragma("unroll")
#else
#define DDP_UNROLL
#endif

namespace ddp::cuda {

/// The bits of a number, as another type of the same size.
template <class To, class From>
DDP_HD To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

/// The type that an element is computed in.
template <class E>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <class E>
using Wide = typename WideOf<E>::Type;

DDP_HD double widened(double x) noexcept { return x; }
DDP_HD float widened(float x) noexcept { return x; }
DDP_HD float widened(Bfloat x) noexcept { return bits_as<float>(static_cast<uint32_t>(x.bits) << 16); }
DDP_HD float widened(Half x) noexcept {
#if defined(__CUDA_ARCH__)
  const uint32_t bits = x.bits;
  if ((bits & 0x7fffu) > 0x7c00u) return bits_as<float>((bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13);
  return __half2float(__ushort_as_half(x.bits));
#else
  return half_to_float(x.bits);
#endif
}

DDP_HD uint16_t half_bits(float x) noexcept {
#if defined(__CUDA_ARCH__)
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint16_t near = __half_as_ushort(__float2half_rn(x));
  return x != x ? static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x1ffu)) : near;
#else
  return float_to_half(x);
#endif
}

/// An element of type E from a number, rounded once.
template <class E>
struct Narrow;
template <>
struct Narrow<double> {
  static DDP_HD double of(double x) noexcept { return x; }
};
template <>
struct Narrow<float> {
  static DDP_HD float of(float x) noexcept { return x; }
  static DDP_HD float of(double x) noexcept { return static_cast<float>(x); }
};
template <>
struct Narrow<Half> {
  static DDP_HD Half of(float x) noexcept { return {half_bits(x)}; }
  static DDP_HD Half of(double x) noexcept { return {half_bits(round_to_odd(x))}; }
};
template <>
struct Narrow<Bfloat> {
  static DDP_HD Bfloat of(float x) noexcept { return {float_to_bfloat(x)}; }
  static DDP_HD Bfloat of(double x) noexcept { return {float_to_bfloat(round_to_odd(x))}; }
};

/// Elements that one access moves.
template <class E, int count>
struct alignas(sizeof(E) * count) Pack {
  E element[count];
};

}  // namespace ddp::cuda
