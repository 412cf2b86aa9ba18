// SPDX-License-Identifier: Apache-2.0
// What is done with the fields of a message. A message describes its fields once, with their limits, as a sequence of calls
// on one of these classes; so it is written, read and measured from the same text, and a test makes any message from it.
//
// The calls: number(), flag() and choice() for values, bytes() and numbers() for arrays, text() and cut() for strings
// (a longer one is refused, or cut by the writer), list() and runs() for vectors, magic() and version() at the beginning,
// require() checks while reading. Pure. One thread.
// Tested by unit/control/control_codec_test.cpp and fuzz/control_frames_fuzz.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap::fields {

/// Of strings of which equal neighbours are sent once.
struct RunLimits {
  size_t count = 0;  // of strings
  size_t each = 0;   // bytes of one
  size_t all = 0;    // bytes of all
};

template <class Value>
struct WireOf {
  using type = Value;
};
template <class Value>
requires std::is_enum_v<Value>
struct WireOf<Value> {
  using type = std::underlying_type_t<Value>;
};

/// The type in which a choice between `first` and `last` is sent.
template <class Bound>
using Wire = typename WireOf<Bound>::type;

class Writer {
 public:
  /// Does it give the fields their values?
  static constexpr bool kFills = false;

  Writer& number(auto value) { return bytes_.number(value), *this; }
  Writer& flag(bool value) { return bytes_.number(static_cast<uint8_t>(value)), *this; }
  template <class Bound>
  Writer& choice(auto value, Bound, Bound) {
    return bytes_.number(static_cast<Wire<Bound>>(value)), *this;
  }
  template <size_t N>
  Writer& bytes(const std::array<unsigned char, N>& value) {
    return bytes_.text({reinterpret_cast<const char*>(value.data()), N}), *this;
  }
  template <size_t N>
  Writer& numbers(const std::array<uint64_t, N>& values) {
    for (const uint64_t value : values) bytes_.number(value);
    return *this;
  }
  Writer& text(std::string_view value, size_t) { return bytes_.text(value), *this; }
  Writer& cut(std::string_view value, size_t most) { return bytes_.text(value.substr(0, most)), *this; }
  Writer& magic(std::string_view value) { return bytes_.text(value), *this; }
  bool version(uint32_t value, uint32_t) { return bytes_.number(value), true; }
  template <class Element, class One>
  Writer& list(const std::vector<Element>& elements, size_t, One one) {
    bytes_.number(static_cast<uint32_t>(elements.size()));
    for (size_t i = 0; i < elements.size(); ++i) one(elements[i], i);
    return *this;
  }
  Writer& runs(const std::vector<std::string>& values, const RunLimits&) {
    bytes_.number(static_cast<uint32_t>(values.size()));
    const auto end = values.end();
    for (auto from = values.begin(); from != end;) {
      const auto to = std::find_if(from, end, [&](const std::string& value) { return value != *from; });
      bytes_.number(static_cast<uint32_t>(to - from)).text(*from);
      from = to;
    }
    return *this;
  }
  Writer& require(bool, const char*) { return *this; }

  [[nodiscard]] std::string take() && { return std::move(bytes_).bytes(); }

 private:
  ByteWriter bytes_;
};

/// Throws IO or INTERNAL if no writer has written this. It allocates no more than the bytes that are there.
class Reader {
 public:
  static constexpr bool kFills = true;
  explicit Reader(std::string_view bytes) noexcept : bytes_(bytes) {}

  template <class Number>
  Reader& number(Number& value) {
    value = bytes_.number<Number>();
    return *this;
  }
  Reader& flag(bool& value) {
    const auto sent = bytes_.number<uint8_t>();
    require(sent <= 1, "neither yes nor no");
    value = sent == 1;
    return *this;
  }
  template <class Value, class Bound>
  Reader& choice(Value& value, Bound first, Bound last) {
    const auto sent = bytes_.number<Wire<Bound>>();
    require(sent >= static_cast<Wire<Bound>>(first) && sent <= static_cast<Wire<Bound>>(last),
            "a value that does not exist");
    value = static_cast<Value>(sent);
    return *this;
  }
  template <size_t N>
  Reader& bytes(std::array<unsigned char, N>& value) {
    const std::string_view sent = bytes_.text();
    require(sent.size() == N, "a field of a wrong size");
    std::memcpy(value.data(), sent.data(), N);
    return *this;
  }
  template <size_t N>
  Reader& numbers(std::array<uint64_t, N>& values) {
    for (uint64_t& value : values) number(value);
    return *this;
  }
  Reader& text(std::string& value, size_t most) {
    const std::string_view sent = bytes_.text();
    require(sent.size() <= most, "a text that is too long");
    value = sent;
    return *this;
  }
  Reader& cut(std::string& value, size_t most) { return text(value, most); }
  Reader& magic(std::string_view value) { return require(bytes_.text() == value, "the words of another program"); }
  /// False: of another version, and what follows may be anything.
  bool version(uint32_t& value, uint32_t own) {
    number(value);
    if (value != own) bytes_ = ByteReader({});
    return value == own;
  }
  template <class Element, class One>
  Reader& list(std::vector<Element>& elements, size_t most, One one) {
    const auto count = bytes_.number<uint32_t>();
    require(count <= most, "too many of a kind");
    for (uint32_t i = 0; i < count; ++i) one(elements.emplace_back(), i);
    return *this;
  }
  Reader& runs(std::vector<std::string>& values, const RunLimits& limits) {
    const auto count = bytes_.number<uint32_t>();
    require(count <= limits.count, "too many ranks");
    for (size_t all = 0; values.size() < count;) {
      const auto times = bytes_.number<uint32_t>();
      std::string value;
      text(value, limits.each);
      require(times != 0 && times <= count - values.size(), "contributions of ranks that do not exist");
      all += times * value.size();
      require(all <= limits.all, "contributions that are too long");
      values.insert(values.end(), times, value);
    }
    return *this;
  }
  Reader& require(bool holds, const char* what) {
    if (!holds) throw make_error(DDP_ERROR_IO, "a control message with %s", what);
    return *this;
  }
  void expect_end() { require(bytes_.at_end(), "something after its end"); }

 private:
  ByteReader bytes_;
};

/// The most bytes that a message can have. The fields get values with which all others are there.
class Longest {
 public:
  static constexpr bool kFills = true;

  Longest& number(const auto& value) { return add(sizeof value); }
  Longest& flag(bool& value) { return value = true, add(1); }
  template <class Value, class Bound>
  Longest& choice(Value& value, Bound first, Bound) {
    value = static_cast<Value>(first);
    return add(sizeof(Wire<Bound>));
  }
  template <size_t N>
  Longest& bytes(const std::array<unsigned char, N>&) {
    return add(kLength + N);
  }
  template <size_t N>
  Longest& numbers(const std::array<uint64_t, N>&) {
    return add(N * sizeof(uint64_t));
  }
  Longest& text(const std::string&, size_t most) { return add(kLength + most); }
  Longest& cut(const std::string&, size_t most) { return add(kLength + most); }
  Longest& magic(std::string_view value) { return add(kLength + value.size()); }
  bool version(const uint32_t& value, uint32_t) { return add(sizeof value), true; }
  template <class Element, class One>
  Longest& list(std::vector<Element>&, size_t most, One one) {
    const size_t before = size_;
    Element element{};
    one(element, size_t{0});
    size_ = before + most * (size_ - before);
    return add(kLength);
  }
  Longest& runs(const std::vector<std::string>&, const RunLimits& limits) {
    return add(kLength + limits.count * 2 * kLength + limits.all);
  }
  Longest& require(bool, const char*) { return *this; }

  [[nodiscard]] size_t size() const noexcept { return size_; }

 private:
  static constexpr size_t kLength = sizeof(uint32_t);
  Longest& add(size_t bytes) { return size_ += bytes, *this; }
  size_t size_ = 0;
};

}  // namespace ddp::bootstrap::fields
