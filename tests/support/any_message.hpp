// SPDX-License-Identifier: Apache-2.0
// Any message of the control plane, made from the description of its fields: every value within its range, every length up
// to its limit, by chance from a seed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "control/messages.hpp"
#include "core/random.hpp"

namespace ddp::test {

class FieldMaker {
 public:
  static constexpr bool kFills = true;
  explicit FieldMaker(uint64_t seed) : seed_(seed) {}

  FieldMaker& number(auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(next());
    return *this;
  }
  FieldMaker& flag(bool& value) { return value = next() % 2 == 1, *this; }
  template <class Value, class Bound>
  FieldMaker& choice(Value& value, Bound first, Bound last) {
    const uint64_t span = static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;
    value = static_cast<Value>(static_cast<uint64_t>(first) + next() % span);
    return *this;
  }
  template <size_t N>
  FieldMaker& bytes(std::array<unsigned char, N>& value) {
    for (unsigned char& byte : value) byte = static_cast<unsigned char>(next());
    return *this;
  }
  template <size_t N>
  FieldMaker& numbers(std::array<uint64_t, N>& values) {
    for (uint64_t& value : values) value = next();
    return *this;
  }
  FieldMaker& text(std::string& value, size_t most) {
    const size_t size = next() % 8 == 0 ? std::min(most, kLong) : next() % 20;
    value.clear();
    while (value.size() < size) value.push_back(static_cast<char>(next()));
    return *this;
  }
  FieldMaker& cut(std::string& value, size_t most) { return text(value, most); }
  FieldMaker& magic(std::string_view) { return *this; }
  bool version(uint32_t& value, uint32_t own) { return value = own, true; }
  template <class Element, class One>
  FieldMaker& list(std::vector<Element>& elements, size_t most, One one) {
    elements.clear();
    for (size_t i = 0, count = next() % std::min<size_t>(most + 1, 9); i < count; ++i) one(elements.emplace_back(), i);
    return *this;
  }
  FieldMaker& runs(std::vector<std::string>& values, const bootstrap::fields::RunLimits&) {
    values.assign(next() % 9, "");
    for (std::string& value : values)
      if (next() % 2 == 0) text(value, 40);
    return *this;
  }
  FieldMaker& require(bool, const char*) { return *this; }

 private:
  static constexpr size_t kLong = 3'000;
  uint64_t next() { return philox_u64(seed_, 0, at_++); }
  uint64_t seed_;
  uint64_t at_ = 0;
};

/// One that the reader takes.
template <class Message>
Message any_message(uint64_t seed) {
  FieldMaker maker(seed);
  Message message{};
  bootstrap::messages::describe(maker, message);
  if constexpr (std::is_same_v<Message, bootstrap::messages::Table>)
    for (size_t i = 0; i < message.members.size(); ++i) message.members[i].rank = static_cast<int32_t>(i);
  return message;
}

}  // namespace ddp::test
