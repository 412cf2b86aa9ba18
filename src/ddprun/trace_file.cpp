// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_trace_test.sh.
#include "ddprun/trace_file.hpp"

#include <set>
#include <utility>

#include "core/attempt.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/report_file.hpp"
#include "trace/merge.hpp"

namespace ddp::ddprun {

void prepare_trace(const std::string& path) {
  if (const std::string text = refuse_file("--trace", path); !text.empty()) throw ExitError{kExitUsage, text};
}

TraceFile::TraceFile(const Options& options, std::string folder)
    : options_(options), folder_(std::move(folder)), news_(folder_), path_(options.telling.trace) {}

void TraceFile::pass_on(const std::function<void(const Report&)>& give) {
  if (!options_.telling.traced) return;
  for (trace::Piece& piece : news_.take())
    give({Report::Kind::kPiece, 0, 0, 0, std::move(piece.file), std::move(piece.bytes), piece.offset});
}

void TraceFile::keep(int32_t host, const Report& report) noexcept {
  if (path_.empty()) return;
  // What cannot be kept is missing.
  static_cast<void>(
      trace::put_piece(folder_, {"host-" + std::to_string(host) + "-" + report.name, report.offset, report.bytes}));
}

std::string TraceFile::write() {
  const std::string path = std::exchange(path_, "");
  if (path.empty()) return "";
  size_t ranks = 0;
  const std::optional<Error> failed = try_to([&] {
    std::vector<trace::Ring> rings = trace::read_rings(folder_);
    std::set<int32_t> numbers;
    for (const trace::Ring& ring : rings) numbers.insert(ring.owner.rank);
    ranks = numbers.size();
    trace::merge_to(path, std::move(rings));
  });
  if (failed) return "the trace is not written: " + std::string(failed->what());
  if (ranks == 0) return "the trace is empty: no rank has made a group of libddp";
  const bool by_hand = options_.machines.hosts.empty() && options_.machines.placement.size() > 1;
  return "the trace of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + (by_hand ? " of this machine" : "") +
         " is in " + path + "; open it at https://ui.perfetto.dev or in chrome://tracing";
}

}  // namespace ddp::ddprun
