// SPDX-License-Identifier: Apache-2.0
// Do all ranks have the same model? A description of it as text lines, and the first difference between the ranks'
// descriptions as a sentence that names the ranks and their values. Pure functions.
// Tested by unit/core/description_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/model.h"

namespace ddp {

/// One line per fact, in an order that makes the first difference the most telling one: version, options, parameters,
/// buffers.
[[nodiscard]] std::vector<std::string> describe_model(const Parameters& table, const ddp_model_options& options,
                                                      const std::string& hook = "none");

/// One line for each bucket that the program gives.
[[nodiscard]] std::vector<std::string> describe_buckets(const GivenBuckets& buckets);

[[nodiscard]] std::string pack_lines(const std::vector<std::string>& lines);
[[nodiscard]] std::vector<std::string> unpack_lines(std::string_view packed);

/// The first line in which ranks differ: "parameter 3 is "w2" F32 [4, 5] on rank 0, but "w2" F32 [4, 6] on ranks 1 and 3".
[[nodiscard]] std::optional<std::string> first_difference(const std::vector<std::vector<std::string>>& by_rank);

/// The same as numbers: the ranks that differ from rank 0 there; if it is a parameter, its number and the bytes that it has
/// on rank 0 and on the first of the others.
[[nodiscard]] ErrorDetails details_of_difference(const std::vector<std::vector<std::string>>& by_rank);

/// "rank 1", "ranks 1 and 3", "ranks 1, 3 and 4"
[[nodiscard]] std::string name_ranks(const std::vector<int32_t>& ranks);

}  // namespace ddp
