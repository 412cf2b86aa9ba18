// SPDX-License-Identifier: Apache-2.0
#include "optim/fields.hpp"

#include <charconv>
#include <system_error>

#include "core/error.hpp"

namespace ddp::optim {
namespace {

const std::string& text_of(const Fields& fields, const std::string& key) {
  const auto found = fields.find(key);
  if (found == fields.end()) throw make_error(DDP_ERROR_MISMATCH, "the checkpoint lacks the field \"%s\"", key.c_str());
  return found->second;
}

Error not_a_number(const std::string& key, const std::string& text) {
  return make_error(DDP_ERROR_IO, "the checkpoint's field \"%s\" is \"%.40s\", which is not a number of its type",
                    key.c_str(), text.c_str());
}

/// All of `part` as a number.
template <class Number>
bool parse(std::string_view part, Number& number) {
  const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), number);
  return code == std::errc() && end == part.data() + part.size();
}

}  // namespace

std::string number_text(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

double read_number(const Fields& fields, const std::string& key) {
  const std::string& text = text_of(fields, key);
  double number = 0;
  if (!parse(text, number)) throw not_a_number(key, text);
  return number;
}

int64_t read_count(const Fields& fields, const std::string& key) {
  const std::string& text = text_of(fields, key);
  int64_t count = 0;
  if (!parse(text, count) || count < 0) throw not_a_number(key, text);
  return count;
}

int32_t read_flag(const Fields& fields, const std::string& key) {
  const int64_t flag = read_count(fields, key);
  if (flag > 1) throw not_a_number(key, text_of(fields, key));
  return static_cast<int32_t>(flag);
}

NumberPair read_pair(const Fields& fields, const std::string& key) {
  const std::string& text = text_of(fields, key);
  const std::string_view whole = text;
  const size_t space = whole.find(' ');
  NumberPair pair;
  if (space == whole.npos || !parse(whole.substr(0, space), pair.first) || !parse(whole.substr(space + 1), pair.second))
    throw not_a_number(key, text);
  return pair;
}

}  // namespace ddp::optim
