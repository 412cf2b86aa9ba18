// SPDX-License-Identifier: Apache-2.0
// The events of a model's passes, for a trace that is on: marks, buckets that wait and are reduced, passes.
// Cost: without a trace a test of two pointers. With a trace a reading of the clock and an event each. Only the first pass
// of a trace allocates, for the names of its parameters. Threads: mark() from any; the rest from one at a time. Tested by
// process/trace_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "trace/event.hpp"

namespace ddp::bootstrap {
class CallState;
}  // namespace ddp::bootstrap
namespace ddp::trace {
class Recorder;
}  // namespace ddp::trace

namespace ddp::pass {

class PassEvents {
 public:
  /// What is passed outlives it.
  PassEvents(const bootstrap::CallState& calls, const Parameters& table, const Plan& plan);

  /// The n-th pass of the model.
  void begin(int64_t pass);
  [[nodiscard]] bool are_on() const noexcept { return on_.load(std::memory_order_relaxed); }
  /// With a trace: a gradient was marked, or the part of it in this range.
  void mark(int32_t parameter, std::span<const PiecePlace> places) noexcept;
  /// The bucket starts. What is to be recorded when it is done; NULL: nothing.
  [[nodiscard]] const trace::Event* start(size_t bucket) noexcept;
  /// The pass is over, and was not left open.
  void end() noexcept;

 private:
  void introduce(trace::Recorder& recorder);
  [[nodiscard]] trace::Event event(trace::EventKind kind, uint32_t number) const noexcept;

  const bootstrap::CallState& calls_;
  const Parameters& table_;
  const Plan& plan_;
  uint32_t introduced_ = 0;  // in the n-th trace
  std::atomic<bool> on_{false};
  uint32_t model_ = 0;
  uint32_t pass_ = 0;
  int64_t begin_ns_ = 0;
  std::vector<std::atomic<int64_t>> first_marks_;  // by bucket; 0: none yet
  trace::Event started_;
};

}  // namespace ddp::pass
