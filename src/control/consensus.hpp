// SPDX-License-Identifier: Apache-2.0
// One rank's problem becomes the result of all: each does its part and keeps its error, and then all throw the same error or
// none. Tested by unit/control/consensus_test.cpp and process/.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "control/control.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {

/// What a rank tells the others: its error, or what it brings.
[[nodiscard]] std::string outcome_bytes(const Error* mine, std::string_view brought = {});

/// What all have brought, by rank. Throws the error of the first rank that has one, a lack of memory before others; it says
/// which rank lacks it.
std::vector<std::string> read_outcomes(const Control& control, const std::vector<std::string>& outcomes);

[[nodiscard]] inline bool all_equal(const std::vector<std::string>& answers) {
  return std::all_of(answers.begin(), answers.end(), [&](const std::string& each) { return each == answers.front(); });
}

/// Runs `body`, which gives bytes or nothing. Returns what this rank tells the others of it.
template <class Body>
[[nodiscard]] std::string outcome_of(Body&& body) {
  std::string brought;
  const std::optional<Error> problem = try_to([&] {
    if constexpr (std::is_void_v<decltype(body())>)
      body();
    else
      brought = body();
  });
  return outcome_bytes(problem ? &*problem : nullptr, brought);
}

/// Collective over `control`: every rank runs its body and gets what all bodies gave, by rank. If any threw, all ranks throw
/// the same, and the group lives.
template <class Body>
std::vector<std::string> all_or_none(Control& control, std::string_view what, os::Deadline deadline, Body&& body) {
  return read_outcomes(control, control.gather(what, outcome_of(body), deadline));
}

}  // namespace ddp::bootstrap
