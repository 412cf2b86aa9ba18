// SPDX-License-Identifier: Apache-2.0
// The error of a void pass: every rank knows from the bucket headers that some rank missed something; now they tell each
// other what.
// Tested by conformance/pass_test.cpp and conformance/uneven_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "core/error_bytes.hpp"
#include "core/parameters.hpp"
#include "exchange/ranks.hpp"

namespace ddp::pass {

/// What one rank has to say about it.
struct MissingGradients {
  int32_t missing = 0;             // gradients that it did not mark
  std::vector<std::string> names;  // of the first few
  std::vector<int32_t> indices{};  // of the first kListed
  std::string reason;              // why it abandoned the pass; empty: it did not
  int32_t virtual_rank = -1;       // in whose part; -1: the rank has one
};
inline constexpr size_t kNamedGradients = 5;

/// What an error of this rank alone is about.
[[nodiscard]] ErrorDetails details_of(const MissingGradients& mine, int32_t rank);
/// "\"w1\", \"w2\" and 3 more"
[[nodiscard]] std::string names_of(const MissingGradients& theirs);

/// Collective. Throws INVALID_STATE, the same text on every rank. `table`: the ranks tell each other positions in it.
[[noreturn]] void report_void_pass(const collective::Ranks& ranks, const Parameters& table, MissingGradients mine);

}  // namespace ddp::pass
