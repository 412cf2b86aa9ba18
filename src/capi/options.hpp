// SPDX-License-Identifier: Apache-2.0
// The struct_size rule, once: a caller compiled against an older or newer header passes a shorter or longer struct.
//  - init zeroes what the caller has and writes the defaults this library knows;
//  - reading copies what both know; a longer struct is accepted only if its unknown tail is zero;
//  - a report, whose struct_size the caller has set, gets what it has room for, and zeros behind what this library knows.
// Every such struct starts with `int64_t struct_size`.
// Tested by unit/capi/options_test.cpp.
#pragma once

#include <cstring>

#include "core/error.hpp"

namespace ddp::capi {

/// Write `defaults` into the caller's struct of `struct_size` bytes.
template <class Options>
void init_options(Options* options, int64_t struct_size, Options defaults, const char* function) {
  if (options == nullptr) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: options is NULL", function);
  if (struct_size < static_cast<int64_t>(sizeof(int64_t)) || struct_size > 65536)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: struct_size is %lld; pass sizeof the options struct", function,
                     static_cast<long long>(struct_size));
  const auto caller = static_cast<size_t>(struct_size);
  defaults.struct_size = struct_size;
  std::memset(static_cast<void*>(options), 0, caller);
  std::memcpy(static_cast<void*>(options), &defaults, caller < sizeof defaults ? caller : sizeof defaults);
}

/// Throws INVALID_ARGUMENT unless the caller has set it.
inline void check_struct_size(int64_t struct_size, const char* function) {
  if (struct_size < static_cast<int64_t>(sizeof(int64_t)) || struct_size > 65536)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: struct_size is %lld; set it to sizeof the struct before the call",
                     function, static_cast<long long>(struct_size));
}

/// Write `values` into the caller's report.
template <class Report>
void fill_sized(Report* report, const Report& values, const char* function) {
  check_struct_size(report->struct_size, function);
  init_options(report, report->struct_size, values, function);
}

/// The caller's options on top of `defaults`; NULL: the defaults.
template <class Options>
[[nodiscard]] Options read_options(const Options* options, Options defaults, const char* function) {
  defaults.struct_size = static_cast<int64_t>(sizeof defaults);
  if (options == nullptr) return defaults;
  const int64_t size = options->struct_size;
  if (size < static_cast<int64_t>(sizeof(int64_t)) || size > 65536)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: struct_size is %lld; fill the options with their _init function first",
                     function, static_cast<long long>(size));
  const auto caller = static_cast<size_t>(size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (size_t i = sizeof defaults; i < caller; ++i)
    if (bytes[i] != 0)
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "%s: the options use a field that this version of libddp (%s) does not know; update the library",
                       function, DDP_VERSION_STRING);
  std::memcpy(static_cast<void*>(&defaults), options, caller < sizeof defaults ? caller : sizeof defaults);
  defaults.struct_size = static_cast<int64_t>(sizeof defaults);
  return defaults;
}

}  // namespace ddp::capi
