// SPDX-License-Identifier: Apache-2.0
// Finds the known word that a mistyped word was meant to be.
// Pure. Any thread.
// Tested by unit/core/closest_test.cpp.
#pragma once

#include <span>
#include <string_view>

namespace ddp {

/// The known word that is at most two typing errors away (a letter too much, too few, another, or two swapped; one error in
/// a word of fewer than 5 letters), the nearest first; "" if no word matches.
[[nodiscard]] std::string_view closest(std::string_view word, std::span<const std::string_view> known);

}  // namespace ddp
