// SPDX-License-Identifier: Apache-2.0
// Arrays for kernels: every kind of number in them, odd addresses, and no byte more than they need, so that the address
// sanitizer sees each access outside of them.
#pragma once

#include "core/dtype.hpp"
#include "support/check.hpp"

namespace ddp::test {

inline constexpr ddp_dtype kFloats[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// `count` elements that begin `offset` elements behind a multiple of 64 bytes.
class WildArray {
 public:
  WildArray(ddp_dtype dtype, int64_t count, int64_t offset = 0)
      : dtype_(dtype),
        count_(count),
        memory_(static_cast<char*>(::operator new (room(dtype, count, offset), std::align_val_t{64}))),
        data_(memory_ + offset * dtype_size(dtype)),
        offset_(offset) {
    std::memset(data_, 0, static_cast<size_t>(bytes()));
  }
  WildArray(const WildArray& other) : WildArray(other.dtype_, other.count_, other.offset_) {
    std::memcpy(data_, other.data_, static_cast<size_t>(bytes()));
  }
  WildArray(WildArray&& other) noexcept
      : dtype_(other.dtype_),
        count_(other.count_),
        memory_(std::exchange(other.memory_, nullptr)),
        data_(other.data_),
        offset_(other.offset_) {}
  WildArray& operator=(const WildArray&) = delete;
  ~WildArray() { ::operator delete (memory_, std::align_val_t{64}); }

  [[nodiscard]] ddp_dtype dtype() const { return dtype_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] int64_t bytes() const { return count_ * dtype_size(dtype_); }
  [[nodiscard]] void* data() { return data_; }
  [[nodiscard]] const void* data() const { return data_; }
  template <class T>
  [[nodiscard]] T* as() {
    return reinterpret_cast<T*>(data_);
  }

  /// Random numbers of about 1; one in eight is any pattern of bits: zeros, subnormal numbers, infinities, NaNs, huge ones.
  WildArray& fill(uint64_t seed, bool wild = true) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < count_; ++i) set(i, random(), wild && random() % 8 == 0);
    return *this;
  }
  /// The numbers are magnitudes, as a second moment is.
  WildArray& make_positive() {
    for (int64_t i = 0; i < count_; ++i) data_[(i + 1) * dtype_size(dtype_) - 1] &= 0x7f;
    return *this;
  }

  /// Bits are equal, or both are NaN.
  void expect_same(const WildArray& wanted, const std::string& what) const {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t size = dtype_size(dtype_);
      if (std::memcmp(data_ + i * size, wanted.data_ + i * size, static_cast<size_t>(size)) == 0 ||
          (is_nan(i) && wanted.is_nan(i)))
        continue;
      throw std::runtime_error(what + ": element " + std::to_string(i) + " of " + std::to_string(count_) + " (" +
                               dtype_name(dtype_) + ") is " + bits(i) + ", expected " + wanted.bits(i));
    }
  }

 private:
  static size_t room(ddp_dtype dtype, int64_t count, int64_t offset) {
    return static_cast<size_t>((count + offset) * dtype_size(dtype));
  }
  void set(int64_t i, uint64_t random, bool any_bits) {
    const int64_t size = dtype_size(dtype_);
    const double number = static_cast<double>(random >> 11) * 0x1p-51 - 2.0;
    const auto single = static_cast<float>(number);
    uint64_t bits = random;
    if (!any_bits && dtype_ == DDP_F64) std::memcpy(&bits, &number, 8);
    if (!any_bits && dtype_ == DDP_F32) std::memcpy(&bits, &single, 4);
    if (!any_bits && dtype_ == DDP_BF16) std::memcpy(&bits, reinterpret_cast<const char*>(&single) + 2, 2);
    if (!any_bits && dtype_ == DDP_F16) bits = (random & 0x83ff) | (13 + (random >> 20) % 6) << 10;  // between 1/4 and 16
    std::memcpy(data_ + i * size, &bits, static_cast<size_t>(size));
  }
  [[nodiscard]] bool is_nan(int64_t i) const {
    const uint64_t word = raw(i);
    switch (dtype_) {
      case DDP_F64: return (word & 0x7fffffffffffffff) > 0x7ff0000000000000;
      case DDP_F32: return (word & 0x7fffffff) > 0x7f800000;
      case DDP_F16: return (word & 0x7fff) > 0x7c00;
      default: return (word & 0x7fff) > 0x7f80;
    }
  }
  [[nodiscard]] uint64_t raw(int64_t i) const {
    uint64_t word = 0;
    std::memcpy(&word, data_ + i * dtype_size(dtype_), static_cast<size_t>(dtype_size(dtype_)));
    return word;
  }
  [[nodiscard]] std::string bits(int64_t i) const {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(raw(i)));
    return text;
  }

  ddp_dtype dtype_;
  int64_t count_;
  char* memory_;
  char* data_;
  int64_t offset_;
};

/// Lengths on both sides of every limit of the kernels: vectors, blocks of threads, groups of 128, tiles.
inline std::vector<int64_t> odd_lengths() {
  return {0, 1, 2, 3, 7, 8, 15, 17, 127, 128, 129, 1023, 1024, 1025, 4097, 8191, 16385, 20000};
}

}  // namespace ddp::test
