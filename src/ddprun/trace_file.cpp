// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_trace_test.sh.
#include "ddprun/trace_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "core/attempt.hpp"
#include "ddprun/fd.hpp"
#include "ddprun/launch.hpp"
#include "trace/merge.hpp"

namespace ddp::ddprun {

void prepare_trace(const std::string& path) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file.open())
    throw ExitError{kExitUsage, "--trace: the file " + path + " cannot be written: " + strerror(errno) + "."};
}

std::string write_trace(const std::string& path, const std::string& folder) {
  size_t ranks = 0;
  const std::optional<Error> failed = try_to([&] {
    std::vector<trace::Ring> rings = trace::read_rings(folder);
    std::set<int32_t> numbers;
    for (const trace::Ring& ring : rings) numbers.insert(ring.owner.rank);
    ranks = numbers.size();
    trace::merge_to(path, std::move(rings));
  });
  if (failed) return "the trace is not written: " + std::string(failed->what());
  if (ranks == 0) return "the trace is empty: no rank has made a group of libddp";
  return "the trace of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " is in " + path +
         "; open it at https://ui.perfetto.dev or in chrome://tracing";
}

}  // namespace ddp::ddprun
