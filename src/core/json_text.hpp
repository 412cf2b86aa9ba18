// SPDX-License-Identifier: Apache-2.0
// A text as JSON has it. Pure. Any thread. Tested by unit/core/json_text_test.cpp.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace ddp {

/// In quotation marks; what cannot stand between them is written as an escape. Bytes above 0x7f stay as they are.
[[nodiscard]] inline std::string json_text(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      json += code;
      continue;
    }
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  return json + '"';
}

}  // namespace ddp
