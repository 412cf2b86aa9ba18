// SPDX-License-Identifier: Apache-2.0
// Which of the known words somebody meant who made a typing error.
// Pure. Any thread.
// Tested by unit/core/closest_test.cpp.
#pragma once

#include <span>
#include <string_view>

namespace ddp {

/// The known word that is at most two typing errors away (a letter too much, too few, another, or two swapped; one error in
/// a word of fewer than 5 letters), the nearest first; "" if there is none.
[[nodiscard]] std::string_view closest(std::string_view word, std::span<const std::string_view> known);

}  // namespace ddp
