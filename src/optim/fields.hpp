// SPDX-License-Identifier: Apache-2.0
// Numbers as text in a checkpoint's header: the shortest decimal that reads back to the same bits.
// Any thread.
// Tested by unit/optim/fields_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ddp::optim {

using Fields = std::map<std::string, std::string>;

[[nodiscard]] std::string number_text(double number);

/// Throw MISMATCH if the key is missing, IO if its text is not such a number.
[[nodiscard]] double read_number(const Fields& fields, const std::string& key);
[[nodiscard]] int64_t read_count(const Fields& fields, const std::string& key);  // 0 or more
[[nodiscard]] int32_t read_flag(const Fields& fields, const std::string& key);   // 0 or 1

/// Two numbers with a space between them.
struct NumberPair {
  double first = 0;
  double second = 0;
};
[[nodiscard]] NumberPair read_pair(const Fields& fields, const std::string& key);

}  // namespace ddp::optim
