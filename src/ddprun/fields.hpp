// SPDX-License-Identifier: Apache-2.0
// Reads an object of JSON that another process has written.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ddprun/json.hpp"

namespace ddp::ddprun {

/// Bytes that may be anything, as text.
[[nodiscard]] std::string to_hex(std::string_view bytes);

/// A field that is missing, of another type or out of range makes the whole object bad, and so does one that nobody has
/// read. What is read from a bad object means nothing.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object), good_(object.is_object()) {}

  template <class Number>
  [[nodiscard]] Number number(const char* name, Number least = 0, Number most = std::numeric_limits<Number>::max()) {
    const Json* const field = find(name);
    const bool fits = field != nullptr && field->is_number_integer() && is_signed(*field) &&
                      field->get<int64_t>() >= int64_t{least} && field->get<int64_t>() <= int64_t{most};
    good_ = good_ && fits;
    return fits ? static_cast<Number>(field->get<int64_t>()) : least;
  }
  /// Of a field that may be missing, which means 0.
  [[nodiscard]] int64_t count(const char* name) { return object_.contains(name) ? number<int64_t>(name) : 0; }
  [[nodiscard]] bool truth(const char* name);
  [[nodiscard]] std::string text(const char* name);
  /// Of a field that to_hex() has made.
  [[nodiscard]] std::string bytes(const char* name);
  /// An array; of a bad one nothing.
  [[nodiscard]] const Json& list(const char* name);

  /// Any value; of a bad object null.
  [[nodiscard]] const Json& object(const char* name);

  void refuse_unless(bool holds) noexcept { good_ = good_ && holds; }
  [[nodiscard]] bool good() const noexcept { return good_ && read_ == object_.size(); }

 private:
  [[nodiscard]] const Json* find(const char* name);
  /// Does it fit into an int64_t?
  [[nodiscard]] static bool is_signed(const Json& number);

  const Json& object_;
  size_t read_ = 0;
  bool good_;
};

}  // namespace ddp::ddprun
