// SPDX-License-Identifier: Apache-2.0
/** @file
 * Spans, and tensors that know their element type from the C++ type.
 */
#ifndef DDP_CPP_TENSOR_HPP
#define DDP_CPP_TENSOR_HPP

#include <complex>
#include <cstddef>
#include <initializer_list>
#include <iterator>

#include "ddp/cpp/error.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** A view of contiguous elements: pointer and number. Made from arrays and from any object with data() and size(). As
 * std::span of C++20. */
template <class T>
class Span {
 public:
  Span() = default;
  Span(T* data, std::size_t size) : data_(data), size_(size) {}
  template <std::size_t count>
  Span(T (&array)[count]) : data_(array), size_(count) {} /* NOLINT: an array is a span */
  template <class Container, class Data = decltype(std::data(std::declval<Container&>())),
            class = std::enable_if_t<std::is_convertible_v<std::remove_pointer_t<Data> (*)[], T (*)[]>>>
  Span(Container&& container) : data_(std::data(container)), size_(std::size(container)) {} /* NOLINT */

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](std::size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/** Element type of a C++ type. A program with its own 16-bit types specializes it:
 * `template <> struct ddp::DtypeOf<my_half> { static constexpr ddp_dtype value = DDP_F16; };` */
template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr ddp_dtype value = DDP_F32;
};
template <>
struct DtypeOf<double> {
  static constexpr ddp_dtype value = DDP_F64;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr ddp_dtype value = DDP_I32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr ddp_dtype value = DDP_I64;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr ddp_dtype value = DDP_U8;
};
template <>
struct DtypeOf<std::complex<float>> {
  static constexpr ddp_dtype value = DDP_C64;
};
template <>
struct DtypeOf<std::complex<double>> {
  static constexpr ddp_dtype value = DDP_C128;
};

/** Sizes of the dimensions of a tensor. */
using Shape = std::initializer_list<std::int64_t>;

/** A dense, row-major tensor of the program: a ddp_tensor without other members. For a GPU set device and device_index by
 * hand. */
struct Tensor : ddp_tensor {
  /** What the C API gave. */
  explicit Tensor(const ddp_tensor& tensor) : ddp_tensor(tensor) {}

  /** Memory of any element type. */
  Tensor(void* memory, ddp_dtype type, Span<const std::int64_t> sizes) : ddp_tensor() {
    check(ddp_tensor_init(this, memory, type, static_cast<std::int32_t>(sizes.size()), sizes.data()));
  }
  /** As above: `ddp::Tensor(data, DDP_BF16, {3, 4})`. */
  Tensor(void* memory, ddp_dtype type, Shape sizes)
      : Tensor(memory, type, Span<const std::int64_t>(sizes.begin(), sizes.size())) {}

  /** `ddp::Tensor(data, {3, 4})`; the element type is T's. */
  template <class T>
  Tensor(T* memory, Shape sizes) : Tensor(static_cast<void*>(memory), DtypeOf<T>::value, sizes) {}

  /** One dimension: an array, a vector, a span. */
  template <class Container, class Data = decltype(std::data(std::declval<Container&>())),
            ddp_dtype dtype_of = DtypeOf<std::remove_pointer_t<Data>>::value>
  Tensor(Container&& container) /* NOLINT: a vector is a tensor */
      : Tensor(std::data(container), {static_cast<std::int64_t>(std::size(container))}) {}

  /** The same memory with other dimensions. Throws INVALID_ARGUMENT if it would have another number of elements. */
  Tensor reshaped(Shape sizes) const {
    Tensor other(data, dtype, sizes);
    other.device = device, other.device_index = device_index;
    if (other.count() != count()) {
      throw Error(DDP_ERROR_INVALID_ARGUMENT, -1, "ddp::Tensor::reshaped: the new shape has another number of elements");
    }
    return other;
  }

  /** Number of elements. */
  std::int64_t count() const noexcept {
    std::int64_t product = 1;
    for (std::int32_t i = 0; i < ndim; ++i) product *= shape[i];
    return product;
  }

  /** The elements. Throws INVALID_ARGUMENT if they are of another type, or on a GPU. */
  template <class T>
  Span<T> span() const {
    if (dtype != DtypeOf<std::remove_const_t<T>>::value || device != DDP_CPU) {
      throw Error(DDP_ERROR_INVALID_ARGUMENT, -1, "ddp::Tensor::span: the tensor has another element type, or is on a GPU");
    }
    return Span<T>(static_cast<T*>(data), static_cast<std::size_t>(count()));
  }
};

/** A tensor that a call only reads, from memory that may be const. */
class Input {
 public:
  Input(const Tensor& tensor) : tensor_(tensor) {} /* NOLINT: a tensor can be read */
  template <class Container, class Data = decltype(std::data(std::declval<Container&>())),
            ddp_dtype dtype = DtypeOf<std::remove_const_t<std::remove_pointer_t<Data>>>::value>
  Input(Container&& container) /* NOLINT: a vector can be read */
      : tensor_(const_cast<std::remove_const_t<std::remove_pointer_t<Data>>*>(std::data(container)),
                {static_cast<std::int64_t>(std::size(container))}) {}
  const ddp_tensor* get() const noexcept { return &tensor_; }

 private:
  Tensor tensor_;
};

}  // namespace cpp17_v1
}  // namespace ddp

#endif
