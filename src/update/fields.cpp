#include "update/fields.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "base/error.hpp"

namespace ddp {
namespace {

const std::string& find(const Fields& fields, const std::string& key, const char* what) {
  const auto at = fields.find(key);
  if (at == fields.end()) throw make_error(DDP_ERROR_MISMATCH, "%s has no field \"%s\"", what, key.c_str());
  return at->second;
}

[[nodiscard]] Error not_a_number(const std::string& text, const std::string& key, const char* what) {
  return make_error(DDP_ERROR_IO, "the field \"%s\" of %s is \"%.40s\", which is not a number", key.c_str(), what, text.c_str());
}

}  // namespace

std::string exact_text(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

double parse_double(const std::string& text, const std::string& key, const char* what) {
  // from_chars knows no locale; it takes hexadecimal digits without their 0x.
  const bool negative = !text.empty() && text[0] == '-';
  const size_t sign = negative ? 1 : 0;
  const bool hexadecimal = text.compare(sign, 2, "0x") == 0;
  const char* begin = text.data() + sign + (hexadecimal ? 2 : 0);
  const char* end = text.data() + text.size();
  double value = 0;
  const auto [stop, error] =
      std::from_chars(begin, end, value, hexadecimal ? std::chars_format::hex : std::chars_format::general);
  if (error != std::errc() || stop != end || !std::isfinite(value)) throw not_a_number(text, key, what);
  return negative ? -value : value;
}

int64_t parse_integer(const std::string& text, const std::string& key, const char* what) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) throw not_a_number(text, key, what);
  return value;
}

double read_double(const Fields& fields, const std::string& key, const char* what) {
  return parse_double(find(fields, key, what), key, what);
}

int64_t read_integer(const Fields& fields, const std::string& key, const char* what) {
  return parse_integer(find(fields, key, what), key, what);
}

}  // namespace ddp
