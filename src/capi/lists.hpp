// SPDX-License-Identifier: Apache-2.0
// Lists that a program asks for with memory of its own: (ranks, capacity, out_count).
// Tested by capi/recovery_test.cpp and capi/error_details_test.c.
#pragma once

#include <algorithm>
#include <span>

#include "capi/guard.hpp"

namespace ddp::capi {

struct ListTo {
  int32_t* numbers;
  int32_t capacity;
  int32_t* out_count;
};

/// Throws INVALID_ARGUMENT. `what` is the name of the array, for the error text.
inline void check_list(const ListTo& to, const char* what, const char* function) {
  require(to.out_count, function, "out_count");
  if (to.capacity < 0 || (to.capacity > 0 && to.numbers == nullptr))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: capacity is %d; it is the number of elements of %s, or 0", function,
                     to.capacity, what);
}

inline void write_list(const ListTo& to, std::span<const int32_t> found) {
  std::copy_n(found.begin(), std::min(found.size(), static_cast<size_t>(to.capacity)), to.numbers);
  *to.out_count = static_cast<int32_t>(found.size());
}

}  // namespace ddp::capi
