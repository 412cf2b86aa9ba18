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
#include "pass/part.hpp"
#include "trace/event.hpp"

namespace ddp::bootstrap {
class CallState;
}  // namespace ddp::bootstrap
namespace ddp::group {
class Group;
}  // namespace ddp::group
namespace ddp::trace {
class Recorder;
}  // namespace ddp::trace

namespace ddp::parts {

class PassEvents final : public pass::PassPart {
 public:
  /// What is passed outlives it.
  PassEvents(group::Group& group, const Parameters& table, const Plan& plan);

  void begin(pass::Opening& opening) override;
  void marked(int32_t parameter, std::span<const PiecePlace> places) noexcept override;
  [[nodiscard]] const trace::Event* starting(size_t bucket) noexcept override;
  void closed(const pass::Closing& closing) noexcept override;

 private:
  /// Is a trace on that records the n-th pass?
  [[nodiscard]] bool record_pass(int64_t pass);
  void introduce(trace::Recorder& recorder);
  [[nodiscard]] trace::Event event(trace::EventKind kind, uint32_t number) const noexcept;

  group::Group& group_;
  const bootstrap::CallState& calls_;
  const Parameters& table_;
  const Plan& plan_;
  uint32_t introduced_ = 0;  // in the n-th trace
  bool on_ = false;
  uint32_t model_ = 0;
  uint32_t pass_ = 0;
  int64_t begin_ns_ = 0;
  std::vector<std::atomic<int64_t>> first_marks_;  // by bucket; 0: none yet
  trace::Event started_;
};

}  // namespace ddp::parts
