// SPDX-License-Identifier: Apache-2.0
// The details of an error in a message between ranks. Of each list the first kListed. Pure.
// Tested by unit/core/error_test.cpp.
#pragma once

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace ddp {

inline constexpr size_t kListed = 1024;

void write_details(ByteWriter& writer, const Error& error);

/// The error with the details that were written. Throws INTERNAL for what write_details() does not write.
[[nodiscard]] Error read_details(ByteReader& reader, const Error& error);

void write_list(ByteWriter& writer, const std::vector<int32_t>& numbers);
[[nodiscard]] std::vector<int32_t> read_list(ByteReader& reader);

}  // namespace ddp
