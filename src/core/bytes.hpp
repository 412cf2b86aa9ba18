// SPDX-License-Identifier: Apache-2.0
// Bounded little-endian reader and writer for messages between ranks. A read past the end throws; nothing is allocated
// before a length was checked against what is really there.
// Tested by unit/core/bytes_test.cpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/error.hpp"

namespace ddp {

class ByteWriter {
 public:
  template <class T>
  ByteWriter& number(T value) {
    static_assert(std::is_integral_v<T> || std::is_floating_point_v<T>);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof value);
    return *this;
  }
  /// Length (32 bits), then the bytes.
  ByteWriter& text(std::string_view value) {
    number(static_cast<uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const& noexcept { return bytes_; }
  [[nodiscard]] std::string bytes() && noexcept { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) noexcept : bytes_(bytes) {}

  template <class T>
  [[nodiscard]] T number() {
    static_assert(std::is_integral_v<T> || std::is_floating_point_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  [[nodiscard]] std::string_view text() { return take(number<uint32_t>()); }
  [[nodiscard]] bool at_end() const noexcept { return bytes_.empty(); }
  /// What has not been read yet.
  [[nodiscard]] std::string_view rest() const noexcept { return bytes_; }

 private:
  std::string_view take(size_t count) {
    if (count > bytes_.size()) throw Error(DDP_ERROR_INTERNAL, "a message between ranks is shorter than it says");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string_view bytes_;
};

}  // namespace ddp
