// Numbers of an optimizer's state as text and back, exactly: what is written is read as the same bits.
// Tested by unit/update/fields_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ddp {

using Fields = std::map<std::string, std::string>;

/// Hexadecimal, so that no digit is lost; readers of C99 numbers understand it.
[[nodiscard]] std::string exact_text(double value);

/// Throw MISMATCH if the field is missing and IO if it is not a number; `what` names the state ("the optimizer's state").
[[nodiscard]] double read_double(const Fields& fields, const std::string& key, const char* what);
[[nodiscard]] int64_t read_integer(const Fields& fields, const std::string& key, const char* what);

[[nodiscard]] double parse_double(const std::string& text, const std::string& key, const char* what);
[[nodiscard]] int64_t parse_integer(const std::string& text, const std::string& key, const char* what);

}  // namespace ddp
