// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/orders_test.cpp.
#include "ddprun/fields.hpp"

#include <optional>

namespace ddp::ddprun {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::optional<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const size_t high = std::string_view(kDigits).find(text[i]), low = std::string_view(kDigits).find(text[i + 1]);
    if (high > 15 || low > 15) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace

std::string to_hex(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

const Json* Fields::find(const char* name) {
  const auto found = good_ ? object_.find(name) : object_.end();
  if (!good_ || found == object_.end()) {
    good_ = false;
    return nullptr;
  }
  ++read_;
  return &*found;
}

bool Fields::is_signed(const Json& number) {
  return !number.is_number_unsigned() || number.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
}

bool Fields::truth(const char* name) {
  const Json* const field = find(name);
  good_ = good_ && field->is_boolean();
  return good_ && field->get<bool>();
}

std::string Fields::text(const char* name) {
  const Json* const field = find(name);
  good_ = good_ && field->is_string();
  return good_ ? field->get<std::string>() : "";
}

std::string Fields::bytes(const char* name) {
  const std::optional<std::string> bytes = from_hex(text(name));
  good_ = good_ && bytes.has_value();
  return bytes.value_or("");
}

const Json& Fields::list(const char* name) {
  static const Json kNone = Json::array();
  const Json* const field = find(name);
  good_ = good_ && field->is_array();
  return good_ ? *field : kNone;
}

const Json& Fields::object(const char* name) {
  static const Json kNone;
  const Json* const field = find(name);
  return field != nullptr ? *field : kNone;
}

}  // namespace ddp::ddprun
