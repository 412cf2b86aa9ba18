// SPDX-License-Identifier: Apache-2.0
// One file of all ranks: rings in, JSON of the trace event format out, which Perfetto and chrome://tracing open. Each rank
// is a process there, with rows for its calls, passes, marks, buckets, waits and GPU; what overlaps without lying inside one
// another gets a row of its own. Arrows and counters: arrows.hpp. Times are microseconds by the clock of the first rank,
// from its first event on.
// Pure. Any thread.
// Tested by unit/trace/merge_test.cpp and process/trace_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/ring.hpp"

namespace ddp::trace {

/// `out` gets the text in pieces.
void merge(std::vector<Ring> rings, const std::function<void(std::string_view)>& out);
/// Into a file, which gets its name when it is whole. Throws what os::file_error makes.
void merge_to(const std::string& path, std::vector<Ring> rings);

}  // namespace ddp::trace
